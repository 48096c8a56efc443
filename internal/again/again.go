// Package again waits between the attempts of something that is tried again.
package again

import (
	"context"
	"math/rand/v2"
	"time"
)

// maxPause bounds the middle of a pause.
const maxPause = time.Second

// Budget is the time in which something is attempted again. It is for one
// goroutine.
type Budget struct {
	ctx      context.Context
	deadline time.Time
	wait     time.Duration
}

// Until returns a budget that ends at deadline, or with ctx. Its first pause is
// first at the middle, and the middle doubles up to a second.
func Until(ctx context.Context, deadline time.Time, first time.Duration) *Budget {
	return &Budget{ctx: ctx, deadline: deadline, wait: first}
}

// Left is the time in which another attempt may begin.
func (b *Budget) Left() time.Duration { return time.Until(b.deadline) }

// Pause waits before another attempt, longer each time and never exactly as long
// as others do. False means that the time is up, or would be after the wait.
func (b *Budget) Pause() bool {
	d := b.wait/2 + rand.N(b.wait)
	b.wait = min(2*b.wait, maxPause)
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
