package cdclog

import (
	"fmt"
)

// MaxShards is the maximum Shard.Count. Each shard reads the topics back at its start and
// has its own connections, so more shards would cost more than they gain.
const MaxShards = 1024

// Shard is one of Count equal parts of an outbox table. It owns the aggregates whose
// partition token is in part Index of the token ring, counted from 0. The token of an
// aggregate never changes, so its shard does not depend on CDC generations, tablets and
// streams. The zero value is the whole table.
//
// One relay at a time owns a shard, and all relays use the same Count. To change Count,
// stop the relays with the old value, then start those with the new one. They resume from
// the existing checkpoints; they lose no event and publish none twice, because they read
// their topics back.
//
// A table whose partition key is not the aggregate's column alone cannot be divided:
// shard 0 owns the whole table and the others nothing.
type Shard struct {
	Index, Count int
}

// String returns the shard as it appears in the relay's name, such as 03-of-16; empty for
// the whole table.
func (s Shard) String() string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%02d-of-%02d", s.Index, s.Count)
}

// Name returns the relay name under which the shard's state is stored in
// relay_checkpoints, relay_backfills and relay_instances, such as outbox/03-of-16. For
// the whole table it is the relay's own name.
func (s Shard) Name(relay string) string {
	if s.Count == 0 {
		return relay
	}
	return relay + "/" + s.String()
}

// Validate returns an error if Count or Index is out of range.
func (s Shard) Validate() error {
	switch {
	case s.Count < 0 || s.Count > MaxShards:
		return fmt.Errorf("Shard.Count %d is not between 1 and %d, or 0 for the whole table", s.Count, MaxShards)
	case s.Index < 0 || s.Index >= max(s.Count, 1):
		return fmt.Errorf("Shard.Index %d is not between 0 and %d: Shard.Count is %d", s.Index, max(s.Count, 1)-1, s.Count)
	}
	return nil
}
