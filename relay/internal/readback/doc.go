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
// Group.mu is taken before Reader.mu.
package readback
