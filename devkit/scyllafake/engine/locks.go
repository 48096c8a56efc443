package engine

import (
	"hash/maphash"
	"slices"
	"sync"
)

// stripes are the locks of all partitions. Two partitions may share one.
type stripes struct {
	once sync.Once
	seed maphash.Seed
	mu   [256]sync.Mutex
}

func (s *stripes) stripe(id partitionID) int {
	s.once.Do(func() { s.seed = maphash.MakeSeed() })
	return int(maphash.Comparable(s.seed, id) % uint64(len(s.mu)))
}

// lock locks partitions, in one order for all callers, and returns a function that
// unlocks them.
func (s *stripes) lock(ids ...partitionID) (unlock func()) {
	if len(ids) == 1 {
		m := &s.mu[s.stripe(ids[0])]
		m.Lock()
		return m.Unlock
	}
	at := make([]int, len(ids))
	for i, id := range ids {
		at[i] = s.stripe(id)
	}
	slices.Sort(at)
	at = slices.Compact(at)
	for _, i := range at {
		s.mu[i].Lock()
	}
	return func() {
		for _, i := range at {
			s.mu[i].Unlock()
		}
	}
}
