// Package guard protects an HTTP service from an unavailable database and from more
// requests than the database can serve.
//
// A Guard has a breaker, which holds statements back from a database that does not
// answer; a limited number of places at the database with a limited queue before them;
// and a time limit for one attempt. It reports by metrics and logs under the name of
// its service.
package guard
