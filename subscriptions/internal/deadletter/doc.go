// Package deadletter converts messages of subscriptions to dead letters and back, and
// redelivers the ones that operators replay.
//
// A dead letter contains the event of the message in the form of package dlq, so that all
// operations on dead letters work. The place of the record and the parts of the event that
// an outbox event does not have are in its metadata. The event that Record returns decodes
// as the original one, with its bytes, unless an operator has edited it.
//
// A replay is delivered to the subscription alone. The dead letter is claimed by the
// subscription, not by a process: the epoch of the partition already decides which process
// delivers, and the next owner finishes what the former one began.
//
// A dead letter belongs to the incarnation in its metadata: one of a deleted subscription is
// refused by a later one of the name.
//
// # Premises
//
//   - It relies on places that name one message: incarnation, topic id, partition, generation and
//     offset. If database and committed offsets go back together, as by a restored backup, another
//     message has the place, and its dead letter the next id (Message.Collisions).
//   - It relies on a reader of the partition of a dead letter. If nobody reads it any more, the replay
//     is suspended with that reason.
//   - Bulk jobs and notices find dead letters by FirstFailedAt. So it is the time of the dead
//     letter (Message.At, taken for each attempt to write it); the first delivery, which may be
//     hours before, is in the metadata.
//   - It relies on the database for claims. While it is away, requests for replays wait.
package deadletter
