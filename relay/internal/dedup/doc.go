// Package dedup remembers which events are published, so that each is published once.
//
//   - Index: the ids of published events.
//   - Lines: the line of each aggregate.
//   - fresh: an event whose row the sweep reader has not read yet. Its id is kept.
//   - shown: an event whose row the sweep reader has read. Its id is kept for some time,
//     because a retry or a batchlog replay may have written the row twice.
//   - horizon: the newest write time of all evicted ids.
//   - doubt: an unknown event has a number that its aggregate has passed, so the line proves
//     nothing until the rows and the topics are read.
//   - line: the range of accepted sequence numbers of an aggregate; gaps are the numbers in
//     it that were skipped.
//   - Found: events that a start found in the topics, with which an Index is seeded.
//   - Share: the room of a shard, an equal part of the Pool of its process.
//
// What it relies on, and what follows where that fails:
//
//   - An id belongs to one event of the table. Of two events with one id the second counts as
//     published; package publish reports it.
//   - The first row of an id that the sweep reader reads is the first that was written. A later
//     one was stored again, and its time says nothing of the order.
//   - A number belongs to one event of its aggregate, and numbers only grow. Where they do
//     not, the line is in doubt.
//
// Index, Lines and Found have no locks and are not safe for concurrent use.
package dedup
