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
//   - Records of other producers may be in the topics, also between its own and with the same
//     ids and aggregates. A record is the relay's by ce_source and ce_table; one without
//     ce_table, of an earlier version, by ce_source. After a change of either the relay does
//     not recognize its records, and repeats events of the confidence window.
//   - The clock that dates records, of a broker or of a relay, is right up to
//     Config.ReadBackMargin. If it is behind, records are older than their events: their
//     creation times show it, and a start and a proof read further back (clockOffset). One
//     that is ahead only makes them read more.
//   - A batch can be decoded, to a size that a relay writes. One that cannot is skipped and
//     reported: an event in it counts as unpublished.
//   - A partition retains every record of the relay since the first one: records of others may be
//     dated by another clock. What retention has deleted from the partition of an event's key
//     counts as published; other partitions prove nothing.
//
// Group.mu is taken before Reader.mu.
package readback
