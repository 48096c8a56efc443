// Package dbclock measures the clock of the database, by which rows are dated: a row that a
// process dates by the clock of its own host may be one that every reader has passed.
//
// It relies on most nodes having clocks that are right to the tolerance of their readers. One
// node that is ahead, and a clock of this host that is set or wrong, change nothing.
package dbclock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

// SkewTolerated is the difference between the clocks of the host and the database from
// which a relay reports it.
const SkewTolerated = time.Second

// skewIgnored is the difference that is not corrected: nodes differ by as much.
const skewIgnored = 100 * time.Millisecond

const (
	// measurements is how many measurements in succession a later time of the database needs
	// to be believed: one node may be ahead.
	measurements = 3
	// nodeMeasured is for how long the last measurement of a node counts.
	nodeMeasured = 5 * time.Minute
)

// Clock is the database's clock, by which ScyllaDB and writers date rows. It is measured
// by Measure, and that of this host before. A nil Clock is that of this host. It is safe
// for concurrent use.
//
// Rows are dated by any node, and whoever reads up to a time that is too late misses the rows
// that are dated earlier. So the clock is that of the node that is furthest behind, of those
// measured last. Between measurements it advances by this host's monotonic clock: it does not
// change when the clock of this host is set.
type Clock struct {
	Wall func() time.Time // the clock of this host; nil is time.Now. Set it before the first use

	mu       sync.Mutex
	last     []Measurement // in the order of their times
	measured time.Duration // Ahead after the last one
	changed  chan struct{} // closed when measured changes; nil without anyone who waits
}

// Measurement is the time of a node, as it was read.
type Measurement struct {
	Node string    // an id
	Time time.Time // by the node's clock
	Read time.Time // by this host's, with its monotonic reading, at which the node's is believed to be Time
	// Exact is by how much Time may be off, in both directions.
	Exact time.Duration
}

// Now returns the database's time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, ahead := c.compare()
	return wall.Add(-ahead)
}

// Ahead returns how far the clock of this host is ahead of the database's; zero if they
// differ by less than the measurement is exact.
func (c *Clock) Ahead() time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ahead := c.compare()
	return ahead
}

// Latest returns the later of the database's time and that of this host: scylla-cdc-go reads no
// row that is older than the ttl of the log by the latter.
func (c *Clock) Latest() time.Time {
	return c.Now().Add(max(c.Ahead(), 0))
}

// Changed returns a channel that is closed after the next measurement that finds that Ahead has
// changed; nil for a nil Clock.
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

// compare returns the time by the clock of this host, without a monotonic reading, which would
// not change when the clock is set, and how far it is ahead. Called locked.
func (c *Clock) compare() (wall time.Time, ahead time.Duration) {
	now := time.Now()
	wall = now.Round(0)
	if c.Wall != nil {
		wall = c.Wall().Round(0)
	}
	for i := range c.last {
		if a := c.last[i].ahead(wall, now); i == 0 || a > ahead {
			ahead = a
		}
	}
	return wall, ahead
}

// ahead returns how far wall is ahead of the node's clock at now, a monotonic reading.
func (m *Measurement) ahead(wall, now time.Time) time.Duration {
	ahead := wall.Sub(m.Time.Add(now.Sub(m.Read)))
	if ahead.Abs()-m.Exact < skewIgnored {
		return 0
	}
	return ahead
}

// Measure reads the database's time from a node, and from several at first.
func (c *Clock) Measure(ctx context.Context, session *gocql.Session) error {
	for {
		began, m := time.Now(), Measurement{}
		iter := session.Query("SELECT toTimestamp(now()) FROM system.local").WithContext(ctx).Idempotent(true).Iter()
		found := iter.Scan(&m.Time)
		if host := iter.Host(); host != nil {
			m.Node = host.HostID()
		}
		err := iter.Close()
		if err == nil && !found {
			err = gocql.ErrNotFound
		}
		if err != nil {
			return fmt.Errorf("read the time of the database: %w", err)
		}
		m.Exact = time.Since(began) / 2
		m.Read = began.Add(m.Exact)
		if c.Add(m) >= measurements {
			return nil
		}
	}
}

// Add adds a measurement and returns the number of measurements that count: the last ones
// in succession, and the last one of each other node.
func (c *Clock) Add(m Measurement) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, m)
	kept := c.last[:0]
	for i := range c.last {
		one := c.last[i]
		again := slices.ContainsFunc(c.last[i+1:], func(later Measurement) bool { return later.Node == one.Node })
		if i >= len(c.last)-measurements || !again && m.Read.Sub(one.Read) < nodeMeasured {
			kept = append(kept, one)
		}
	}
	clear(c.last[len(kept):])
	c.last = kept
	_, ahead := c.compare()
	if ahead != c.measured && c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	c.measured = ahead
	return len(c.last)
}
