// Package guard stands between an HTTP service and its database, so that neither
// a database that is away nor more requests than it can serve make everything late.
//
// A Guard has a breaker, which keeps statements from a database that does not
// answer; a bounded number of places at the database with a bounded queue before
// them; and the time that one attempt may take. What it does is on metrics and in
// the log, under the name of its service.
package guard
