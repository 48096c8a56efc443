// Package topology is a scyllafake node's place in a cluster: its host id, tokens and
// shards, and the CDC streams that follow from them.
//
// In keyspaces with vnodes the streams belong to generations: each vnode and shard has
// one stream in each generation, and a generation is in use from its start, to the
// microsecond, until the next one's. In keyspaces with tablets every table has its own
// sets of streams, one stream for each tablet, and a split or a merge begins a new set.
//
// The state is kept in the store, next to the rows of the system tables that clients
// read.
package topology
