// Package chains contains the open dead letters of a table in memory: their order, when each
// is replayed, and which of them wait for canaries.
//
//   - Ref: a dead letter without its payload. At is the time of its next replay.
//   - Chain: the dead letters of an aggregate in the order of their sequence numbers. A
//     strict chain blocks later events of the aggregate. A chain drains while a replay of
//     it is in progress.
//   - Group: dead letters with one rule and equal errors. Members of a large group are
//     replayed with canaries: a few first, and the others when these are published.
//   - Set: all chains and groups, the chains that wait, by time, and the chains that are
//     due, by priority and age.
//
// It relies on one Set having all open dead letters of its part of the table: a start loads them,
// and operators' changes arrive as requests. Without one that is not loaded, the events behind it
// are published before it.
//
// The package reads and writes no dead letters and publishes nothing. It has no locks: no
// type is safe for concurrent use. The Set of a publisher is part of its cell.
package chains
