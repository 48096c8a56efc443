// Package topology is a scyllafake node's place in a cluster: host id,
// addresses, tokens, shards, CDC generations and tablets.
package topology
