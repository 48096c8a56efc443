package faults

import (
	"sync/atomic"
	"time"
)

// Clock is a node's wall clock, which may be skewed against the true time. It is safe
// for concurrent use.
type Clock struct {
	base func() time.Time
	skew atomic.Int64
}

// NewClock returns a clock without skew over a true one; nil means time.Now.
func NewClock(base func() time.Time) *Clock {
	if base == nil {
		base = time.Now
	}
	return &Clock{base: base}
}

// Now returns the time by the node's clock.
func (c *Clock) Now() time.Time {
	now := c.base()
	if skew := c.skew.Load(); skew != 0 {
		return now.Add(time.Duration(skew))
	}
	return now
}

// Skew returns how far the clock is ahead of the true time.
func (c *Clock) Skew() time.Duration { return time.Duration(c.skew.Load()) }

// SetSkew sets how far the clock is ahead of the true time; negative is behind.
func (c *Clock) SetSkew(d time.Duration) { c.skew.Store(int64(d)) }
