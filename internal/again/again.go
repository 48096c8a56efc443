// Package again waits between the attempts of something that is tried again. Its
// Backoff is the only one of the product.
package again

import (
	"context"
	"math/rand/v2"
	"time"
)

// maxPause bounds a pause.
const maxPause = time.Second

// Backoff returns the wait after the given number of attempts, from 1: lo after the
// first, then it doubles up to hi. Jitter takes up to half of it away, so that many
// that failed together do not return together, and none waits longer than hi.
func Backoff(lo, hi time.Duration, attempts int) time.Duration {
	d := lo
	for ; attempts > 1 && d < hi; attempts-- {
		d *= 2
	}
	d = min(d, hi)
	return d - rand.N(d/2+1)
}

// Budget is the time in which something is attempted again. It is for one
// goroutine.
type Budget struct {
	ctx      context.Context
	deadline time.Time
	first    time.Duration
	attempts int
}

// Until returns a budget that ends at deadline, or with ctx. Its pauses are
// those of Backoff from first up to a second.
func Until(ctx context.Context, deadline time.Time, first time.Duration) *Budget {
	return &Budget{ctx: ctx, deadline: deadline, first: first}
}

// Left is the time in which another attempt may begin.
func (b *Budget) Left() time.Duration { return time.Until(b.deadline) }

// Pause waits before another attempt, longer each time and never exactly as long
// as others do. False means that the time is up, or would be after the wait.
func (b *Budget) Pause() bool {
	b.attempts++
	d := Backoff(b.first, maxPause, b.attempts)
	if b.Left() < d {
		return false
	}
	return Wait(b.ctx, d) == nil
}

// Wait returns nil after d, or the cause of ctx's end if that comes first.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
