// Package cdclog reads the data that ScyllaDB stores for an outbox table: its CDC log,
// the generations and streams of that log, the rows of the table, and the options of
// both.
//
//   - StoredEvent: an event with the write time of its row.
//   - Generation: a set of CDC streams and the time from which it is written to.
//   - StreamRange: the streams of one vnode or tablet.
//   - TokenRange: a part of the token ring.
//   - Portion: the aggregates that one Shard of the relay owns.
//   - Lookup: reads events of one aggregate by key.
//
// The package does not know the publishing order and keeps no state between calls:
// package relay and its parts decide when to read and how to use the result.
//
// # Relies on
//
// The rows of an aggregate are in the order that a statement names; a table may have any
// clustering order. A SERIAL read against the order of the table fails on ScyllaDB, so
// these statements use plain levels.
//
// An event is due at most outbox.MaxDelay after the write time of its row. A row that is due
// later is no event (StoredEvent.Err), by no clock.
package cdclog
