// Package queue keeps the state of one partition of a subscription: keys, leases,
// attempts and the position. It does no I/O and has no clock: every method takes the
// time, and Work returns what has to be done in the database.
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
// One message of a key is active; the others of the key wait for its end. Messages
// without a key, and all messages of an unordered queue, are always active.
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
