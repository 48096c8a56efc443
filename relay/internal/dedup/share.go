package dedup

import (
	"sync"
	"sync/atomic"
)

const (
	// LeastEvents and LeastAggregates are the least that a share has, because a shard needs
	// them to make progress, unless the whole has less.
	LeastEvents, LeastAggregates = 10_000, 1000
	// readBackRoom is the number of times that the room of a Pool may be filled by
	// read-backs: a process that takes over the shards of another one has to remember what
	// both published, until the sweep reader has passed it.
	readBackRoom = 2
)

// Pool is the room of the shards of a table that run in one process: each has an equal
// share. The zero value is ready. It is safe for concurrent use.
//
// The shares are equal, rather than one number of events for all shards, so that a shard
// whose sweep reader stopped does not stop the tail readers of the others.
type Pool struct {
	shards atomic.Int64 // that have joined
	held   atomic.Int64 // events of all of them
}

// Share is the room of one shard, or of a relay without shards. It is safe for concurrent
// use.
type Share struct {
	pool               *Pool
	events, aggregates int // of the pool

	mu   sync.Mutex
	in   bool
	held int // events that count in the pool
}

// Shards returns the number of shards that have joined.
func (p *Pool) Shards() int { return int(p.shards.Load()) }

// Share returns the share of a shard, for Pools with that many events that the sweep
// reader has not read, and idle aggregates. It reduces the shares of others from Join on.
func (p *Pool) Share(events, aggregates int) *Share {
	return &Share{pool: p, events: events, aggregates: aggregates}
}

// Join divides the pool among its shards and this one. It has no effect after Join.
func (s *Share) Join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.in {
		s.in = true
		s.pool.shards.Add(1)
	}
}

// Leave gives the share to the other shards. It has no effect before Join.
func (s *Share) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in {
		s.in = false
		s.pool.shards.Add(-1)
		s.pool.held.Add(-int64(s.held))
		s.held = 0
	}
}

// Hold records how many events the sweep reader has still to read.
func (s *Share) Hold(events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in { // a status may be read when the shard has left
		s.pool.held.Add(int64(events - s.held))
		s.held = events
	}
}

// Events returns the maximum number of events that the sweep reader has not read. A shard
// with more of them, because another one has joined, keeps them.
func (s *Share) Events() int { return s.pool.part(s.events, LeastEvents) }

// Aggregates returns the maximum number of idle aggregates.
func (s *Share) Aggregates() int { return s.pool.part(s.aggregates, LeastAggregates) }

// ReadBack returns the maximum number of events for a read-back: three quarters of the
// share, or of the whole room while the shards together remain below readBackRoom of it.
// An event beyond it may be published twice, so a shard may take more than its share; its
// tail reader then waits until the sweep reader has passed them.
func (s *Share) ReadBack() int {
	s.mu.Lock()
	others := int(s.pool.held.Load()) - s.held
	s.mu.Unlock()
	return max(s.Events()/4*3, min(s.events/4*3, readBackRoom*s.events-others))
}

// part returns a shard's part of a number.
func (p *Pool) part(whole, least int) int {
	if whole <= least {
		return whole
	}
	return max(whole/max(p.Shards(), 1), least)
}
