// Package queue keeps the state of one partition of a subscription: keys, leases,
// attempts and the position. It does no I/O and has no clock: every method takes the
// time, and Work returns the changes to make in the database.
//
// # Message
//
// A message is in one phase:
//
//	Waiting   can be leased once it is active, in the window and in memory
//	Leased    delivered until the lease ends
//	Deferred  a delivery failed; it waits for its next one
//	Dead      it is given up: its row, and then its dead letter, is being written
//	Settled   acknowledged, dead-lettered or purged; the confirmation is pending
//
// One message of a key is active, or a run: consecutive messages that one request has leased.
// The others of the key wait for the end of all. Messages without a key, and all messages of an
// unordered queue, are always active. Keys gives each key to one queue of a subscription at a
// time.
//
// # Premises
//
//   - A producer writes the records of a key in one order to one partition of a topic. After
//     partitions are added, a key may be active in the former and in the new partition at two
//     owners until the former records are settled.
//   - All queues that may have a key share Keys: the caller gives an owner all partitions of a
//     key. Otherwise a key is active once for each owner.
//   - Times of one process do not go back. If they do, leases and delays end later. Clocks of
//     two owners may differ: leases are handed over with their remaining time, and end that much
//     later as the hand-over takes, within MaxDelivery.
//   - Records are added in the order of their offsets. The row of a message at or after the
//     position says nothing about earlier records of its key: it waits for them to be read. If
//     they never come, because retention deleted them all, it waits for the next record.
//   - A hand-over is that of the last owner, and belongs to the records of Start.Origin. If it is an
//     older one, a lease that has ended blocks its message until its time is over, and its receipt is
//     accepted.
//   - The consumer of a run processes it in its order. One that does not sees its own order.
//
// # Settled offsets
//
// An offset is settled in the position as soon as its message is settled or stored. The
// committed offset is that of the first message which is neither. A message is delivered
// only within position.Window of it, so that the metadata of a commit can describe every
// acknowledgement. A settled message ends after the commit of its offset and then, if
// it may have a row, after the removal of the row.
//
// A Queue has one owner: it is not safe for concurrent use.
package queue
