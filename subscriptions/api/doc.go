// Package api serves subscriptions over HTTP.
//
// A request to settle deliveries has the status 200 only if every result is ok. Otherwise
// the response is a problem document with the same results, and its status is the most
// urgent one:
//
//	503  some results are unknown or unavailable; repeat the request as it is
//	422  some receipts are no receipts of the subscription
//	409  some leases have ended; their messages may be delivered again
//
// So a client that checks nothing but the status takes no delivery for settled that is not.
//
// # Premises
//
//   - Clients repeat a request with the status 503. If they do not, messages that they have processed
//     are delivered again.
//   - A proxy in between passes a response on when it is written, and waits for at least 30 seconds.
//     If it does not, messages are leased to nobody until their leases end.
//
// A request that waits for messages costs its own goroutine and nothing else.
//
// It is a part of the program, and may change in any version.
package api
