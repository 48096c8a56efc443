package engine

import (
	"hash/maphash"
	"sync"
)

// stripes are the locks of all partitions. Two partitions may share one.
type stripes struct {
	once sync.Once
	seed maphash.Seed
	mu   [256]sync.Mutex
}

// lock locks a partition and returns a function that unlocks it.
func (s *stripes) lock(id partitionID) (unlock func()) {
	s.once.Do(func() { s.seed = maphash.MakeSeed() })
	m := &s.mu[maphash.Comparable(s.seed, id)%uint64(len(s.mu))]
	m.Lock()
	return m.Unlock
}
