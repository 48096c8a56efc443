package cdclog

import (
	"fmt"
)

// MaxShards bounds Shard.Count. Each shard reads the topics back at its start and
// keeps connections of its own, so more would cost more than they carry.
const MaxShards = 1024

// Shard is one of Count equal parts of an outbox table. It has the aggregates whose
// partition token lies in its part of the token ring, the Index-th from 0 on. The
// token of an aggregate never changes, so neither does its shard, whatever becomes
// of CDC generations, tablets and streams. The zero value is the whole table.
//
// Every shard of a table is carried by one relay at a time, and Count is the same
// for all. It may be changed: stop the relays of the old Count, then start those of
// the new one, which go on where the others were. Nothing is lost by that and
// nothing published twice, since they read their topics back.
//
// A table whose partition key is not the aggregate's column alone has no such
// parts: shard 0 carries it whole, and the others nothing of it.
type Shard struct {
	Index, Count int
}

// String is the shard as its relay's name has it, such as 03-of-16; empty for the
// whole table.
func (s Shard) String() string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%02d-of-%02d", s.Index, s.Count)
}

// Name is the name under which the relay of that name keeps what it knows of the
// shard, in relay_checkpoints, relay_backfills and relay_instances: outbox/03-of-16.
// It is the relay's own name for the whole table.
func (s Shard) Name(relay string) string {
	if s.Count == 0 {
		return relay
	}
	return relay + "/" + s.String()
}

// Validate returns what is wrong with s.
func (s Shard) Validate() error {
	switch {
	case s.Count < 0 || s.Count > MaxShards:
		return fmt.Errorf("Shard.Count %d is not between 1 and %d, or 0 for the whole table", s.Count, MaxShards)
	case s.Index < 0 || s.Index >= max(s.Count, 1):
		return fmt.Errorf("Shard.Index %d is not between 0 and %d: Shard.Count is %d", s.Index, max(s.Count, 1)-1, s.Count)
	}
	return nil
}
