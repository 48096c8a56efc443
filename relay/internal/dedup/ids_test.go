package dedup

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The set behaves like a map, whatever is added and removed in whatever order.
func TestIDSet_IsAMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		s, want := new(idSet), make(map[gocql.UUID]InTopic)
		ids := 1 + rnd.IntN(5000)
		for step := range 20_000 {
			id := relaytest.EventID(rnd.IntN(ids))
			if rnd.IntN(3) > 0 && step%4000 < 3000 {
				in := InTopic(rnd.IntN(2) == 0)
				s.set(id, in)
				want[id] = in
			} else {
				_, ok := want[id]
				delete(want, id)
				if s.remove(id) != ok {
					t.Fatalf("seed %d, step %d: remove() = %t", seed, step, !ok)
				}
			}
			probe := relaytest.EventID(rnd.IntN(ids))
			in, ok := s.find(probe)
			if wantIn, wantOK := want[probe]; in != wantIn || ok != wantOK || s.len() != len(want) {
				t.Fatalf("seed %d, step %d: find() = %t, %t of %d, want %t, %t of %d", seed, step, in, ok, s.len(), wantIn, wantOK, len(want))
			}
		}
		got := make(map[gocql.UUID]InTopic)
		for s.len() > 0 {
			ids := s.takeTable()
			maps.Insert(got, ids.all())
		}
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: takeTable() returns %d ids, want %d", seed, len(got), len(want))
		}
	}
}

// An id needs at most BytesPerID, however many there are.
func TestIDSet_IsSmall(t *testing.T) { //nolint:paralleltest // it measures the heap
	s := new(idSet)
	before := heapInUse()
	for i := range 1_200_000 {
		s.set(relaytest.EventID(i), true)
		if n := i + 1; n >= 100_000 && n%50_000 == 0 {
			if size := heapInUse() - before; size > BytesPerID*n {
				t.Errorf("%d ids need %.1f bytes each, want at most %d", n, float64(size)/float64(n), BytesPerID)
			}
		}
	}
	if s.len() != 1_200_000 {
		t.Error("ids are missing")
	}
}

// in reports whether the set contains the id.
func in(s *idSet, id gocql.UUID) bool {
	_, ok := s.find(id)
	return ok
}

func TestIDSet_Nil(t *testing.T) {
	t.Parallel()
	var s *idSet
	if s.len() != 0 || in(s, relaytest.EventID(1)) || s.remove(relaytest.EventID(1)) {
		t.Error("the nil set is not empty")
	}
}

func BenchmarkIDSet(b *testing.B) {
	ids := make([]gocql.UUID, 1<<20)
	for i := range ids {
		ids[i] = relaytest.EventID(i)
	}
	b.Run("set", func(b *testing.B) {
		s := new(idSet)
		for i := 0; b.Loop(); i++ {
			if i%200_000 == 0 {
				s = new(idSet)
			}
			s.set(ids[i%len(ids)], true)
		}
	})
	b.Run("set map", func(b *testing.B) {
		s := make(map[gocql.UUID]InTopic)
		for i := 0; b.Loop(); i++ {
			if i%200_000 == 0 {
				s = make(map[gocql.UUID]InTopic)
			}
			s[ids[i%len(ids)]] = true
		}
	})
	s, m := new(idSet), make(map[gocql.UUID]InTopic)
	for i := range 200_000 {
		s.set(ids[i], true)
		m[ids[i]] = true
	}
	b.Run("miss", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if in(s, ids[200_000+i%800_000]) {
				b.Fatal("found")
			}
		}
	})
	b.Run("miss map", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, ok := m[ids[200_000+i%800_000]]; ok {
				b.Fatal("found")
			}
		}
	})
}
