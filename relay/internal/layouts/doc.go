// Package layouts lets the shards of a relay continue where relays of other numbers of
// shards ended.
//
//   - Layout: a number of shards into which the table is divided. The table relay_layouts
//     contains all that a relay ever had; 0, the whole table without shards, always counts.
//   - Progress: the checkpoints and scans of one shard of one layout. Each layout has its
//     own.
//
// A position stays true: all rows before it, of its stream and its shard, are published or
// dead letters. So the earliest position among the shards of a layout that overlap a shard
// holds for that shard too, and it continues at the latest one of all layouts. No position
// is moved back.
//
// Each start takes over, because no process knows that it is the first one after a change.
// It relies on one number of shards being used at a time, which the group of the instances ensures
// (package share). If two are, each publishes the events of its shards, some of them twice; no
// position passes an event that is not published.
//
// The package does not decide which layout is in use, and does not stop the instances of
// another one; package relay does.
package layouts
