// Package forward lets every instance answer for all of them: it wraps the local engine in
// a subscriptions.Service that receives from, and settles at, the instances that own the
// partitions.
//
// # Receive
//
// A request takes messages of this instance or, in turns, of a peer. If there are none it
// waits here, and one long poll per peer serves all requests of the subscription that wait
// on this instance. Messages that arrive when no request waits any more are released.
//
// # Settle
//
// A receipt names its owner. Receipts of peers are sent to them; their results are
//
//	unavailable    the owner has a recent report and does not answer
//	lease_expired  the owner has none: it has stopped, and its leases have ended with it
//
// Requests between instances are signed with a key that is derived from the one of
// receipts. They name the instance they are meant for, and they are never forwarded again.
package forward
