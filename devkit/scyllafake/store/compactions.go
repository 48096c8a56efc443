package store

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// compactions lets pebble run up to limit compactions concurrently. Pebble's own
// scheduler does the same but checks every 100 ms whether the limit has changed. Here
// it is fixed, so nothing wakes an idle store, and virtual time can pass hours
// immediately.
//
// Lock order is pebble's: its own mutexes come before mu, so pebble is called with mu
// released.
type compactions struct {
	limit int
	db    pebble.DBForCompaction

	mu       sync.Mutex
	turn     sync.Cond // of granting
	running  int
	granting bool
	closed   bool
	// refused means that TrySchedule refused a compaction while Done asked for waiting
	// ones: the answer may be outdated.
	refused bool
}

var (
	_ pebble.CompactionScheduler   = (*compactions)(nil)
	_ pebble.CompactionGrantHandle = (*compactions)(nil)
)

func newCompactions(limit int) *compactions {
	c := &compactions{limit: limit}
	c.turn.L = &c.mu
	return c
}

// Register implements pebble.CompactionScheduler.
func (c *compactions) Register(_ int, db pebble.DBForCompaction) { c.db = db }

// Unregister implements pebble.CompactionScheduler: when it returns, no call to the
// database is in progress, and none follows.
func (c *compactions) Unregister() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.granting {
		c.turn.Wait()
	}
}

// TrySchedule implements pebble.CompactionScheduler.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.running >= c.limit {
		c.refused = true
		return false, nil
	}
	c.running++
	return true, c
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler.
func (c *compactions) UpdateGetAllowedWithoutPermission() {}

// Started implements pebble.CompactionGrantHandle.
func (c *compactions) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (c *compactions) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (c *compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done implements pebble.CompactionGrantHandle: compactions refused while this one ran
// may start now.
func (c *compactions) Done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	for c.granting {
		c.turn.Wait()
	}
	c.granting = true
	for !c.closed && c.running < c.limit {
		c.running++
		c.refused = false
		c.mu.Unlock()
		waiting, _ := c.db.GetWaitingCompaction()
		started := waiting && c.db.Schedule(c)
		c.mu.Lock()
		if !started {
			c.running--
			if !c.refused {
				break
			}
		}
	}
	c.granting = false
	c.turn.Broadcast()
}
