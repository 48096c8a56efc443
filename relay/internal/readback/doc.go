// Package readback reads the topics at the start of a relay, to find the events that the
// checkpoints do not cover and that are published nevertheless.
//
//   - Reader: one start's read-back, from the oldest checkpoint to the ends of the topics.
//   - Group: readers of one process that begin together read the topics once.
//   - Topics, Partition: the position in the partitions that are read.
//   - Event: an event that was found, with its aggregate and its sequence number.
//   - Proofs: finds out whether one event is published that the dedup index does not have.
//
// A partition that cannot be read is gated: nothing is published to it before a later
// start has read it. The package publishes nothing; it seeds the dedup index of a
// publish.Publisher.
//
// Group.mu is taken before Reader.mu.
package readback
