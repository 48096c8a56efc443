package cdclog

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Each token belongs to one shard, whatever their number.
func TestPortion_EachTokenHasOneShard(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, count := range []int{1, 2, 3, 16, 1000, MaxShards} {
		tokens := []int64{math.MinInt64 + 1, -1, 0, 1, math.MaxInt64}
		for range 200 {
			tokens = append(tokens, int64(rnd.Uint64()|1))
		}
		for n := range count {
			a := Ring.Part(n, count)
			tokens = append(tokens, a.After+1, a.UpTo)
		}
		found := make([]int, len(tokens))
		for n := range count {
			p := NewPortion(Shard{n, count}, outbox.DefaultTable)
			for i, token := range tokens {
				if p.HasToken(token) {
					found[i]++
				}
			}
		}
		for i, n := range found {
			if n != 1 {
				t.Errorf("token %d belongs to %d shards of %d", tokens[i], n, count)
			}
		}
	}
}

// All representations of an aggregate belong to the same shard.
func TestPortion_AgreesOnAnAggregate(t *testing.T) {
	t.Parallel()
	for n := range 100 {
		e := relaytest.Event(n, 1, "x")
		if n%2 == 0 {
			e.AggregateID = outbox.IDFromText(fmt.Sprint("Käufer/", n))
		}
		var in []int
		for i := range 5 {
			p := NewPortion(Shard{i, 5}, outbox.DefaultTable)
			text := e.AggregateID.String()
			got := p.HasAggregate(e.AggregateID)
			if p.HasKey([]byte(text)) != got || p.HasSubject([]byte(text)) != got || p.HasText(text) != got || p.HasToken(rows.Token(outbox.DefaultTable, e.AggregateID)) != got {
				t.Errorf("shard %d: inconsistent results for aggregate %s", i, text)
			}
			if got {
				in = append(in, i)
			}
		}
		if len(in) != 1 {
			t.Errorf("aggregate %s belongs to shards %v", e.AggregateID, in)
		}
	}
	var whole *Portion
	if !whole.All() || whole.None() || !whole.HasToken(0) || !whole.HasText("x") {
		t.Error("a nil portion is not the whole table")
	}
}

// Skipping rows of other shards allocates nothing, in the tail reader and in read-back.
func TestPortion_AllocatesNothing(t *testing.T) {
	p := NewPortion(Shard{1, 3}, outbox.DefaultTable)
	e := relaytest.Event(1, 1, "x")
	key, text, word := e.AggregateID.UUID().Bytes(), []byte(e.AggregateID.String()), []byte("order-4711-of-somebody-with-a-long-name")
	if n := testing.AllocsPerRun(100, func() { p.HasKey(key); p.HasKey(word); p.HasSubject(text); p.HasAggregate(e.AggregateID) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkPortion(b *testing.B) {
	own := NewPortion(Shard{1, 3}, outbox.DefaultTable)
	key := make([]byte, 16)
	for name, p := range map[string]*Portion{"whole": nil, "shard": &own} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p.HasKey(key)
			}
		})
	}
}
