package engine

import (
	"context"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

const (
	// holderAge is the time for which a holder is known. Requests that wait for the next owner of a
	// partition ask again and again: one read answers all of them.
	holderAge = 200 * time.Millisecond
	// maxHolders bounds holders.known.
	maxHolders = 10_000
)

// holders reads which instances have partitions, once for all requests that ask at the same time.
type holders struct {
	mu    sync.Mutex
	known map[store.Partition]*holder
}

// holder is one read. Its other members are valid after done is closed.
type holder struct {
	done chan struct{}
	at   time.Time
	name string
	err  error
}

// find returns the instance that has claimed a partition last, as it was at most holderAge before
// the call, or the error of the read.
func (h *holders) find(ctx context.Context, p store.Partition, read func(context.Context, store.Partition) (store.Owner, error)) (string, error) {
	h.mu.Lock()
	one := h.known[p]
	if one == nil || one.isOld() {
		if h.known == nil || len(h.known) >= maxHolders {
			h.known = make(map[store.Partition]*holder)
		}
		one = &holder{done: make(chan struct{})}
		h.known[p] = one
		go func() { // on behalf of all, so that the end of one request fails no other one
			defer close(one.done)
			owner, err := read(context.WithoutCancel(ctx), p)
			one.at, one.name, one.err = time.Now(), owner.Owner, err
		}()
	}
	h.mu.Unlock()
	select {
	case <-one.done:
		return one.name, one.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// isOld reports whether the read has ended, and failed or is too long ago.
func (h *holder) isOld() bool {
	select {
	case <-h.done:
		return h.err != nil || time.Since(h.at) > holderAge
	default:
		return false
	}
}
