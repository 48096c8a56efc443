package cdclog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
)

// SkewTolerated is the difference between the clocks of the host and the database from
// which a relay reports it.
const SkewTolerated = time.Second

// skewIgnored is the difference that is not corrected: nodes differ by as much.
const skewIgnored = 100 * time.Millisecond

// Clock is the database's clock, by which ScyllaDB and writers date rows. It is measured
// by Measure, and that of this host before. A nil Clock is that of this host. It is safe
// for concurrent use.
type Clock struct {
	ahead atomic.Int64

	mu      sync.Mutex
	changed chan struct{} // closed when ahead changes; nil without anyone who waits
}

// Now returns the database's time.
func (c *Clock) Now() time.Time { return time.Now().Add(-c.Ahead()) }

// Ahead returns how far the clock of this host is ahead of the database's; zero if they
// differ by less than the measurement is exact.
func (c *Clock) Ahead() time.Duration {
	if c == nil {
		return 0
	}
	return time.Duration(c.ahead.Load())
}

// Measure reads the database's time, and whether the result is more exact than the
// difference to this host's.
func (c *Clock) Measure(ctx context.Context, session *gocql.Session) error {
	var at time.Time
	began := time.Now()
	if err := session.Query("SELECT toTimestamp(now()) FROM system.local").WithContext(ctx).Idempotent(true).Scan(&at); err != nil {
		return fmt.Errorf("read the time of the database: %w", err)
	}
	took := time.Since(began)
	ahead := began.Add(took / 2).Sub(at)
	if ahead.Abs()-took/2 < skewIgnored {
		ahead = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead.Swap(int64(ahead)) != int64(ahead) && c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	return nil
}

// Changed returns a channel that is closed when Ahead changes next; nil for a nil Clock.
func (c *Clock) Changed() <-chan struct{} {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}
