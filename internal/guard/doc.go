// Package guard protects an HTTP service from an unavailable database and from more
// requests than the database can serve.
//
// A Guard has a breaker, which holds statements back from a database that does not
// answer, and a time limit for one attempt. It reports by metrics and logs under the
// name of its service.
//
// A Limiter has a number of places at the database, which follows the database's
// latency, and a short queue before them. Guards of services on one database share one.
// A request enters it once, for as many places as it makes statements concurrently;
// each call of a Guard is a measurement of the latency. Shed refuses requests before
// they are read while the queue is full.
//
// The package does not limit single clients: package access does.
package guard
