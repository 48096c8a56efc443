// Package topicreader reads parts of topics: from offsets up to others, outside of consumer groups.
//
//   - Span, Spans: the parts of partitions that are read.
//   - List: the spans of topics since a time, with the records that exist now.
//   - Reader: reads spans, once.
//
// It does not follow topics: the event streams and outbox tail are consumers of kgo, as the engine of
// the subscriptions is. The read-back of a relay reads by the same requests and keeps its own reader,
// which decodes less of a record; it is to become a user of this package.
//
// # Premises
//
//   - It relies on ends that exist. List therefore lists last stable offsets, before the offsets of a
//     time: no record is between an end and the answer "none since". An open transaction hides the
//     records behind it, also records of other producers.
//   - It relies on the offsets of the broker's answers, not on records, to find the end of a span:
//     the last offsets can be of aborted or control records, or of records that compaction has removed.
//   - It relies on spans whose records stay. Where retention has removed them since List, or the topic
//     was created again, reading fails (kerr.OffsetOutOfRange, ErrRecreated): nothing is left out
//     silently. Gaps within a span, by compaction, are none.
//   - It relies on brokers that come back: a broker that is away, a partition without a leader and a
//     topic that a broker does not know yet are retried, until nothing has been read for Reader.Stall,
//     or ctx ends. Denied access is not retried.
//   - It relies on batches that can be decoded, up to the limit of the client. Others end the reading.
//
// It is a part of the program, and may change in any version.
package topicreader
