package scyllafake

import (
	"sync"
	"time"
)

// Pauses of the balancer of tablets, as seen on a node.
const (
	// balanceStep is the pause between two splits or merges of one table.
	balanceStep = 1900 * time.Millisecond
	// expiryCheck is how late streams may be removed.
	expiryCheck = time.Minute
)

// balancer is the timer of the next look at the tablets.
type balancer struct {
	mu      sync.Mutex
	timer   *time.Timer
	at      time.Time
	stopped bool
	running sync.WaitGroup
}

// balanceIn looks at the tablets after a while, or earlier if that is planned already.
func (s *Server) balanceIn(d time.Duration) {
	if !s.version.HasTablets() {
		return
	}
	b := &s.tablets
	b.mu.Lock()
	defer b.mu.Unlock()
	at := time.Now().Add(d)
	if b.stopped || b.timer != nil && !b.at.After(at) {
		return
	}
	if b.timer != nil {
		b.timer.Stop()
	}
	b.at, b.timer = at, time.AfterFunc(d, func() {
		b.mu.Lock()
		stopped := b.stopped
		b.timer = nil
		if !stopped {
			b.running.Add(1)
		}
		b.mu.Unlock()
		if !stopped {
			defer b.running.Done()
			s.BalanceTablets()
		}
	})
}

// BalanceTablets looks at the tablets now, and not only after Config.TabletInterval: each
// table with CDC that should have more or fewer splits or merges once.
func (s *Server) BalanceTablets() {
	resized, expires, err := s.catalog.BalanceTablets()
	switch {
	case err != nil:
		s.log.Error("tablets are not balanced", "err", err)
	case resized:
		s.balanceIn(balanceStep)
	case !expires.IsZero():
		s.balanceIn(max(expires.Sub(s.clock.Now()), 0) + expiryCheck/2)
	}
}

// SetNodes sets the number of nodes for which tables have tablets, as when one joins or
// leaves: tables without options split or merge within Config.TabletInterval. Nodes of
// Config.Nodes neither start nor stop.
func (s *Server) SetNodes(n int) {
	s.topology.SetNodes(n)
	s.balanceIn(s.cfg.TabletInterval)
}

// stop ends the timer; running.Wait waits for a look in progress.
func (b *balancer) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.timer != nil {
		b.timer.Stop()
	}
}
