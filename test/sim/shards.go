package sim

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// parseRelay returns the name of the relay from a partition key of relay_checkpoints, which
// is composite.
func parseRelay(key []byte) string {
	if len(key) < 2 || len(key) < 2+int(binary.BigEndian.Uint16(key)) {
		return ""
	}
	return string(key[2 : 2+binary.BigEndian.Uint16(key)])
}

// carriedBy returns a function that reports whether the named relay owns an aggregate. It
// is independent of the relay's implementation: shard i of n owns the tokens above i
// n-ths of the ring, up to i+1.
func carriedBy(name string) func(gocql.UUID) bool {
	var i, n int64
	_, shard, _ := strings.Cut(name, "/")
	if _, err := fmt.Sscanf(shard, "%d-of-%d", &i, &n); err != nil {
		return func(gocql.UUID) bool { return true }
	}
	step := new(big.Int).Div(new(big.Int).SetUint64(math.MaxUint64), big.NewInt(n))
	return func(aggregate gocql.UUID) bool {
		above := new(big.Int).Sub(big.NewInt(rows.Token(outbox.DefaultTable, outbox.IDFromUUID(aggregate))), big.NewInt(math.MinInt64)) // at least 1
		of := above.Sub(above, big.NewInt(1)).Div(above, step).Int64()
		return min(of, n-1) == i
	}
}

// byRelay returns the saves by relay.
func (h *history) byRelay() map[string][]save {
	out := make(map[string][]save)
	for _, s := range h.saves {
		out[s.relay] = append(out[s.relay], s)
	}
	return out
}

// divideAndDie starts a random number of shards and kills each soon: before, during and
// after its take-over of existing checkpoints.
func (w *world) divideAndDie(rnd *rand.Rand) {
	w.t.Helper()
	count := 2 + rnd.IntN(4)
	for i := range count {
		if rnd.IntN(4) == 0 {
			continue // never started
		}
		p := w.startShard(relay.Shard{Index: i, Count: count})
		time.Sleep(upTo(rnd, 4*time.Second))
		w.crash(p)
	}
}

// ghost is the writer of checkpoints of no running relay.
const ghost = "ghost"

// haunt repeats writes of the named relay, like a paused relay that has lost its shard:
// random earlier positions and an earlier generation.
func (w *world) haunt(rnd *rand.Rand, name string) {
	w.t.Helper()
	table := keyspace + ".outbox_messages"
	var oldest time.Time
	saved := w.saves.all()
	for _, stream := range slices.Sorted(maps.Keys(saved)) {
		own := slices.DeleteFunc(slices.Clone(saved[stream]), func(s save) bool { return s.relay != name || s.late })
		if len(own) == 0 {
			continue
		}
		s := own[rnd.IntN(len(own))]
		if oldest.IsZero() || s.generation.Before(oldest) {
			oldest = s.generation
		}
		if rnd.IntN(3) > 0 {
			continue
		}
		if err := w.session.Query("INSERT INTO "+keyspace+"."+checkpoints+" (relay, table_name, generation, stream_id, position, updated_by) VALUES (?, ?, ?, ?, ?, ?)",
			name, table, s.generation, []byte(stream), s.position, ghost).Exec(); err != nil {
			w.t.Errorf("write an old position: %v", err)
		}
		w.mu.Lock()
		w.seen.haunted++
		w.mu.Unlock()
	}
	if oldest.IsZero() || rnd.IntN(2) > 0 {
		return
	}
	if err := w.session.Query("INSERT INTO "+keyspace+"."+checkpoints+" (relay, table_name, current_generation) VALUES (?, ?, ?)", name, table, oldest).Exec(); err != nil {
		w.t.Errorf("write an old generation: %v", err)
	}
}

// carryByShards runs the given number of shards for a while, each in its own process that
// is repeatedly stopped or killed and restarted, immediately or later; saves of a
// previous owner may be late. At the end all shards are stopped or killed.
func (w *world) carryByShards(rnd *rand.Rand, count int, span time.Duration) {
	w.t.Helper()
	if w.together = nil; rnd.IntN(3) > 0 {
		w.together = new(relay.Process)
	}
	defer func() { w.together = nil }()
	var shards []*process
	for i := range count {
		shards = append(shards, w.startShard(relay.Shard{Index: i, Count: count}))
	}
	end := func(p *process) {
		if rnd.IntN(2) == 0 {
			w.crash(p)
		} else {
			w.stop(p)
		}
	}
	for until := time.Now().Add(span); time.Now().Before(until); {
		time.Sleep(upTo(rnd, 4*time.Minute))
		i := rnd.IntN(count)
		end(shards[i])
		if rnd.IntN(3) > 0 {
			time.Sleep(upTo(rnd, 3*time.Minute))
		}
		shards[i] = w.startShard(relay.Shard{Index: i, Count: count})
		if rnd.IntN(2) == 0 { // the previous one only lost its shard
			time.Sleep(upTo(rnd, time.Minute))
			w.haunt(rnd, relay.Shard{Index: i, Count: count}.Name(relay.Defaults().Name))
		}
	}
	for _, p := range shards {
		end(p)
	}
}
