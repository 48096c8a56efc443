package admin

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// remembered caches the result of an expensive read for a short time. Concurrent callers
// share one read.
type remembered[T any] struct {
	keep  time.Duration
	read  func(context.Context) (T, error)
	group singleflight.Group

	mu   sync.Mutex
	last T
	at   time.Time // of last; zero before the first
}

func newRemembered[T any](keep time.Duration, read func(context.Context) (T, error)) *remembered[T] {
	return &remembered[T]{keep: keep, read: read}
}

// get returns a result that is not older than keep.
func (r *remembered[T]) get(ctx context.Context) (T, error) {
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
