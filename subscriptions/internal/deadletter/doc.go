// Package deadletter converts messages of subscriptions to dead letters and back, and
// redelivers the ones that operators replay.
//
// A dead letter contains the event of the message in the form of package dlq, so that all
// operations on dead letters work. The place of the record and the parts of the event that
// an outbox event does not have are in its metadata. The event that Record returns decodes
// as the original one; it is not the same bytes: repeated headers and bytes that are not
// UTF-8 are already lost in the events that consumers receive.
//
// A replay is delivered to the subscription alone. The dead letter is claimed by the
// subscription, not by a process: the epoch of the partition already decides which process
// delivers, and the next owner finishes what the former one began.
//
// A dead letter belongs to the incarnation in its metadata: one of a deleted subscription is
// refused by a later one of the name.
package deadletter
