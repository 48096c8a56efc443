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
// A receipt names the instance that made it. Receipts of peers are sent to them. While the
// partition is given to another instance, by a planned change or after a failure, Settle
// asks the database for the one that has claimed it last and sends the receipt there, for up to 10
// seconds. That instance decides:
//
//	ok             the lease was handed over, or is one of its own
//	lease_expired  the lease has ended, or was lost with its owner
//	unavailable    no instance has claimed the partition, or it does not answer: repeat
//
// # Premises
//
//   - Instances reach each other at the addresses in their reports. If one is not reachable, its
//     messages are received and settled at itself only; here they are unavailable.
//   - The clocks of instances differ by less than a minute. Requests of others are refused.
//   - Reports are read from the database. While it is away the last ones are used, and a receipt of
//     an instance that is not among them is unavailable.
//
// Requests between instances are signed with a key that is derived from the one of
// receipts. They name the instance they are meant for, and they are never forwarded again.
//
// It is a part of the program, and may change in any version.
package forward
