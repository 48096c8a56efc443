package topology

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// StreamID identifies a CDC stream. It is 16 bytes: a token, big endian, and a word of
// 38 random bits, 22 bits for the vnode's index and 4 for the version, which is 1. Rows
// of the log are in the partition with that key, and the token places them on the shard
// of the rows that they describe.
type StreamID [16]byte

// newStreamID returns a unique id. Its random bits affect nothing, so they need no
// seed.
func newStreamID(token int64, index int) StreamID {
	var id StreamID
	binary.BigEndian.PutUint64(id[:8], uint64(token))
	low := rand.Uint64()<<26 | uint64(index)&(1<<22-1)<<4 | 1
	binary.BigEndian.PutUint64(id[8:], low)
	return id
}

// Token returns the token part.
func (id StreamID) Token() int64 { return int64(binary.BigEndian.Uint64(id[:8])) }

// Index returns the number of the vnode in the order of tokens; 0 for tablets.
func (id StreamID) Index() int { return int(binary.BigEndian.Uint64(id[8:]) >> 4 & (1<<22 - 1)) }

// MarshalText returns the id in hexadecimal.
func (id StreamID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText is the inverse of MarshalText.
func (id *StreamID) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(id[:], text[:min(len(text), 2*len(id))]); err != nil || n != len(id) || len(text) != 2*n {
		return fmt.Errorf("no stream id: %q", text)
	}
	return nil
}

// Leeway is how far in the future a write's timestamp may be when the table has CDC,
// and, from ScyllaDB 6.0 on, how long after its end a generation still accepts writes.
const Leeway = 5 * time.Second

// VnodeStream returns the stream for a change of the row with this token at timestamp
// (µs) in a keyspace with vnodes. now is the node's clock. The error is the one with
// which ScyllaDB refuses the write: 2200 for a timestamp out of range, 0000 when no
// generation is in use.
//
// The id aliases the generation and must not be changed.
func (t *Topology) VnodeStream(token, timestamp int64, now time.Time) (*StreamID, error) {
	gens := t.state.Load().generations
	nowMicros := now.UnixMicro()
	if timestamp > nowMicros+Leeway.Microseconds() {
		return nil, t.errFuture(timestamp, nowMicros)
	}
	current := usedAt(gens, nowMicros)
	if current < 0 {
		return nil, cqlerr.New(cqlerr.Server, "cdc::metadata::get_stream: could not find any CDC stream (current time: %s)."+
			" Are we in the middle of a cluster upgrade?", t.formatTime(nowMicros))
	}
	if timestamp < gens[current].Micros {
		if !t.nearPast || timestamp <= nowMicros-Leeway.Microseconds() {
			return nil, t.errPast(timestamp, nowMicros, gens[current].Micros)
		}
	}
	used := usedAt(gens, timestamp)
	if used < 0 {
		return nil, t.errPast(timestamp, nowMicros, gens[current].Micros)
	}
	return gens[used].stream(token), nil
}

// TabletStream is VnodeStream for a table, identified by its number in storage, in a
// keyspace with tablets. Every timestamp from the table's first stream set on has a
// stream, however old it is. logID is the id of the table's log.
func (t *Topology) TabletStream(storeID uint32, logID uuid.UUID, token, timestamp int64, now time.Time) (*StreamID, error) {
	nowMicros := now.UnixMicro()
	if timestamp > nowMicros+Leeway.Microseconds() {
		return nil, t.errFuture(timestamp, nowMicros)
	}
	table := t.state.Load().tables[storeID]
	if table == nil {
		return nil, cqlerr.New(cqlerr.Server, "cdc: the table has no streams")
	}
	i, found := slices.BinarySearchFunc(table.Sets, timestamp, func(s *streamSet, ts int64) int { return cmp.Compare(s.Micros, ts) })
	if !found {
		i--
	}
	if i < 0 {
		return nil, cqlerr.New(cqlerr.Server, "cdc::metadata::get_stream: could not find any CDC streams for table %s for timestamp %d.", logID, timestamp)
	}
	return table.Sets[i].stream(token), nil
}

// usedAt returns the index of the generation in use at a time, or -1.
func usedAt(gens []*Generation, timestamp int64) int {
	// It is nearly always the last one.
	for i := len(gens) - 1; i >= 0; i-- {
		if gens[i].Micros <= timestamp {
			return i
		}
	}
	return -1
}

func (t *Topology) errFuture(timestamp, now int64) error {
	return cqlerr.Invalidf("cdc: attempted to get a stream \"from the future\" (%s; current server time: %s)."+
		" With CDC you cannot send writes with timestamps arbitrarily into the future, because we don't"+
		" know what streams will be used at that time.\n"+
		"We *do* allow sending writes into the near future, but our ability to do that is limited."+
		" If you really must use your own timestamps, then make sure your clocks are well-synchronized"+
		"  with the database's clocks.", t.formatTime(timestamp), t.formatTime(now))
}

func (t *Topology) errPast(timestamp, now, start int64) error {
	if t.nearPast {
		return cqlerr.Invalidf("cdc: attempted to get a stream \"from the past\" (%s; current server time: %s)."+
			" With CDC you cannot send writes with timestamps too far into the past, because that would break"+
			" consistency properties.\n"+
			"We *do* allow sending writes into the near past, but our ability to do that is limited."+
			" Are you using client-side timestamps? Make sure your clocks are well-synchronized"+
			" with the database's clocks.", t.formatTime(timestamp), t.formatTime(now))
	}
	return cqlerr.Invalidf("cdc: attempted to get a stream from an earlier generation than the currently used one."+
		" With CDC you cannot send writes with timestamps too far into the past, because that would break"+
		" consistency properties (write timestamp: %s, current generation started at: %s)",
		t.formatTime(timestamp), t.formatTime(start))
}

// formatTime formats a timestamp (µs) as in ScyllaDB's messages: with nanoseconds, or, in
// old releases, in whole seconds, rounded towards 1970.
func (t *Topology) formatTime(micros int64) string {
	if t.nearPast {
		return time.UnixMicro(micros).UTC().Format("2006/01/02 15:04:05.000000000")
	}
	return time.Unix(micros/1e6, 0).UTC().Format("2006/01/02 15:04:05")
}
