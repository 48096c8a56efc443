package engine

import (
	"context"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/cached"
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
	known map[store.Partition]*cached.Value[string]
}

// find returns the instance that has claimed a partition last, as it was at most holderAge before
// the call, or the error of the read. read is the same for all calls.
func (h *holders) find(ctx context.Context, p store.Partition, read func(context.Context, store.Partition) (store.Owner, error)) (string, error) {
	h.mu.Lock()
	one := h.known[p]
	if one == nil {
		if h.known == nil || len(h.known) >= maxHolders {
			h.known = make(map[store.Partition]*cached.Value[string])
		}
		one = cached.New(holderAge, func(ctx context.Context) (string, error) {
			owner, err := read(ctx, p)
			return owner.Owner, err
		})
		h.known[p] = one
	}
	h.mu.Unlock()
	name, err := one.Get(ctx)
	if err != nil {
		return "", err
	}
	return name, nil
}
