package share

import (
	"slices"
	"time"
)

// Status is the state of a member.
type Status struct {
	// Shards is the number of shards. Owned contains the shards that this instance works
	// on, in ascending order.
	Shards int
	Owned  []int
	// Joined reports whether the broker acknowledges this instance; otherwise it owns no
	// shards. An instance that has joined and owns none is a standby.
	Joined bool
	// Lease is the remaining time in which the instance may work on its shards without
	// further answers from the broker.
	Lease time.Duration
	// Err is the last error of the broker or of the connection to it, nil after a
	// success; ErrSince is the time of the first error after the last success.
	Err      error
	ErrSince time.Time
}

// Status returns the current state of the member.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Status{Shards: m.cfg.Shards, Joined: !m.lease.over(), Lease: m.lease.left(), Err: m.err, ErrSince: m.errSince, Owned: []int{}}
	for shard, h := range m.holds {
		if h.lost.Load() == nil {
			s.Owned = append(s.Owned, shard)
		}
	}
	slices.Sort(s.Owned)
	return s
}
