// Package dedup remembers which events are published, so that each is published once.
//
//   - Index: the ids of published events, and the line of each aggregate.
//   - fresh: an event whose row the sweep reader has not read yet. Its id is kept.
//   - shown: an event whose row the sweep reader has read. Its id is kept for some time,
//     because a retry or a batchlog replay may have written the row twice.
//   - horizon: the newest write time of all evicted ids.
//   - line: the range of accepted sequence numbers of an aggregate; gaps are the numbers in
//     it that were skipped.
//   - Found: events that a start found in the topics, with which an Index is seeded.
//
// The package has no locks: Index and Found are not safe for concurrent use. The lock of the
// publish.Publisher guards its Index.
package dedup
