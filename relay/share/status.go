package share

import (
	"slices"
	"time"
)

// Status is what a member owns.
type Status struct {
	// Shards is how many there are, Owned which of them this instance works on, in
	// their order.
	Shards int
	Owned  []int
	// Joined says that the broker acknowledges this instance; without it nothing is
	// owned. An instance that has joined and owns nothing stands by.
	Joined bool
	// Lease is for how much longer the shards may be worked on if the broker says
	// nothing.
	Lease time.Duration
	// Err is what the broker, or the way to it, answered last, nil if all is well.
	Err error
}

// Status says what the member owns now.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Status{Shards: m.cfg.Shards, Joined: !m.lease.over(), Lease: m.lease.left(), Err: m.err, Owned: []int{}}
	for shard, h := range m.holds {
		if h.lost.Load() == nil {
			s.Owned = append(s.Owned, shard)
		}
	}
	slices.Sort(s.Owned)
	return s
}
