// Package retry provides the pauses between attempts. Its Backoff is the only
// back-off of the product.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// maxPause limits the pauses of a Budget.
	maxPause = time.Second
	// maxRequired limits the pauses of Required.
	maxRequired = 5 * time.Second
)

// Backoff returns the pause after the given number of attempts, from 1: lo after the
// first, doubled for each further attempt up to hi. Jitter removes up to half of the
// pause, so that clients that failed together do not retry together.
func Backoff(lo, hi time.Duration, attempts int) time.Duration {
	return BackoffBy(2, lo, hi, attempts)
}

// BackoffBy is Backoff with another factor than 2, from 1.
func BackoffBy(factor int, lo, hi time.Duration, attempts int) time.Duration {
	d := lo
	for ; attempts > 1 && factor > 1 && d < hi; attempts-- {
		d *= time.Duration(factor)
	}
	d = min(d, hi)
	return d - rand.N(d/2+1)
}

// Required returns the pause before the next attempt of a request that the caller cannot
// continue without: Backoff between lo and hi, but at most 5 s, so that the caller
// continues soon after the other side recovers.
func Required(lo, hi time.Duration, attempts int) time.Duration {
	return Backoff(lo, min(hi, maxRequired), attempts)
}

// Budget limits the time for retries of one operation. It is not safe for concurrent
// use.
type Budget struct {
	ctx      context.Context
	deadline time.Time
	first    time.Duration
	attempts int
}

// Until returns a budget that ends at deadline, or with ctx. Its pauses come from
// Backoff, from first up to a second.
func Until(ctx context.Context, deadline time.Time, first time.Duration) *Budget {
	return &Budget{ctx: ctx, deadline: deadline, first: first}
}

// Left returns the time in which another attempt may begin.
func (b *Budget) Left() time.Duration { return time.Until(b.deadline) }

// Pause waits before another attempt and returns true. It returns false, without a
// wait, if the budget would end before the pause does, and when the context ends.
func (b *Budget) Pause() bool {
	b.attempts++
	d := Backoff(b.first, maxPause, b.attempts)
	if b.Left() < d {
		return false
	}
	return Wait(b.ctx, d) == nil
}

// Wait waits for d and returns nil, or the cause of the end of ctx if that comes first.
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
