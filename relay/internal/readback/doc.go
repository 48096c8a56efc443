// Package readback reads the topics at the start of a relay, to find published events
// that the checkpoints do not cover.
//
//   - Reader: one start's read-back, from the oldest checkpoint to the ends of the topics.
//   - Group: readers of one process that begin together read the topics once.
//   - Topics, Partition: the position in the partitions that are read.
//   - Event: an event that was found, with its aggregate and its sequence number.
//   - Proofs: determines whether an event outside the dedup index is published.
//
// A partition that cannot be read is gated: nothing is published to it until a later
// start has read it. The package publishes nothing; it seeds the dedup index of a
// publish.Publisher.
//
// What it relies on, and what follows where that fails:
//
//   - A topic to which a relay has published exists. A broker may not know it for a while, so
//     it counts as deleted once the brokers agree for seconds (unknownTopics); until then a
//     start waits and a proof returns an error.
//   - A partition retains every record since its first one. What retention has deleted from
//     the partition of an event's key counts as published; other partitions prove nothing.
//
// Group.mu is taken before Reader.mu.
package readback
