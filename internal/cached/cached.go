// Package cached keeps the result of an expensive read for a short time.
package cached

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Value caches the result of a read. Concurrent callers share one read. It is safe for
// concurrent use.
type Value[T any] struct {
	keep  time.Duration
	read  func(context.Context) (T, error)
	group singleflight.Group

	mu   sync.Mutex
	last T
	at   time.Time // of last; zero before the first
}

// New returns a Value that keeps each result of read for that long.
func New[T any](keep time.Duration, read func(context.Context) (T, error)) *Value[T] {
	return &Value[T]{keep: keep, read: read}
}

// Get returns a result that is not older than that, or the error of read or ctx.
func (r *Value[T]) Get(ctx context.Context) (T, error) {
	r.mu.Lock()
	last, at := r.last, r.at
	r.mu.Unlock()
	if !at.IsZero() && time.Since(at) < r.keep {
		return last, nil
	}
	// The read serves all waiting callers, so the context of one of them must not cancel
	// it.
	ch := r.group.DoChan("", func() (any, error) {
		began := time.Now()
		v, err := r.read(context.WithoutCancel(ctx))
		if err == nil {
			r.mu.Lock()
			r.last, r.at = v, began
			r.mu.Unlock()
		}
		return v, err
	})
	select {
	case got := <-ch:
		v, _ := got.Val.(T)
		return v, got.Err
	case <-ctx.Done():
		return last, ctx.Err()
	}
}
