package sim

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/relay/hint"
)

// relayOf is the name of the relay in the key of a partition of relay_checkpoints,
// which is composite.
func relayOf(key []byte) string {
	if len(key) < 2 || len(key) < 2+int(binary.BigEndian.Uint16(key)) {
		return ""
	}
	return string(key[2 : 2+binary.BigEndian.Uint16(key)])
}

// carriedBy says which aggregates the relay of that name carries. It is told here
// once more, by other means than the relay's: shard i of n has the tokens above i
// n-ths of the ring, up to i+1.
func carriedBy(name string) func(gocql.UUID) bool {
	var i, n int64
	_, shard, _ := strings.Cut(name, "/")
	if _, err := fmt.Sscanf(shard, "%d-of-%d", &i, &n); err != nil {
		return func(gocql.UUID) bool { return true }
	}
	step := new(big.Int).Div(new(big.Int).SetUint64(math.MaxUint64), big.NewInt(n))
	return func(aggregate gocql.UUID) bool {
		above := new(big.Int).Sub(big.NewInt(hint.Token(aggregate)), big.NewInt(math.MinInt64)) // at least 1
		of := above.Sub(above, big.NewInt(1)).Div(above, step).Int64()
		return min(of, n-1) == i
	}
}

// byRelay are the saves of each relay.
func (h *history) byRelay() map[string][]save {
	out := make(map[string][]save)
	for _, s := range h.saves {
		out[s.relay] = append(out[s.relay], s)
	}
	return out
}

// carryByShards lets a number of shards carry the table for a while, each in a process of
// its own that is stopped or killed now and then, and started anew at once or later.
// At last all of them are.
func (w *world) carryByShards(rnd *rand.Rand, count int, span time.Duration) {
	w.t.Helper()
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
	}
	for _, p := range shards {
		end(p)
	}
}
