// Package cdclog reads what ScyllaDB stores of an outbox table: its CDC log, the
// generations and streams of that log, the rows of the table itself, and the options of
// both.
//
//   - StoredEvent: an event with the write time of its row.
//   - Generation: a set of CDC streams and the time from which it is written to.
//   - StreamRange: the streams of one vnode or tablet.
//   - TokenRange: a part of the token ring.
//   - Portion: the aggregates that one Shard of the relay is responsible for.
//   - Lookup: reads events of one aggregate by key.
//
// Nothing here knows the order in which events are published, and nothing is kept
// between calls: package relay and its parts decide when to read and what to do with it.
package cdclog
