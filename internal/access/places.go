package access

import (
	"context"
	"net"
	"slices"
	"sync"
)

// Places bounds concurrent operations. One holder has at most half of the places, so that
// it cannot starve the others. It is safe for concurrent use.
type Places struct {
	total, each int

	mu struct {
		sync.Mutex
		taken   int
		by      map[string]int // places of each named holder
		waiting []*waiter      // in order of arrival
	}
}

// waiter is a caller of Wait.
type waiter struct {
	holder string
	ready  chan struct{} // closed, with Places locked, when it has its place
}

// NewPlaces returns so many places, at least one.
func NewPlaces(total int) *Places {
	p := &Places{total: max(1, total), each: max(1, total/2)}
	p.mu.by = make(map[string]int)
	return p
}

// Holder returns the key by which places are counted: the principal of ctx or, without
// one, the network of the remote address. It is empty for loopback without a principal:
// an operator's machine, or a proxy for many callers.
func Holder(ctx context.Context, remote string) string {
	if p, ok := From(ctx); ok {
		return p.Name
	}
	host := remote
	if h, _, err := net.SplitHostPort(remote); err == nil {
		host = h
	}
	if host == "" || LoopbackHost(host) {
		return ""
	}
	return "address " + Network(remote)
}

// Take takes a place. It returns false if there is none, or if the holder has its
// share; only the total bounds the empty holder. give must be called once.
func (p *Places) Take(holder string) (give func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.freeLocked(holder) {
		return nil, false
	}
	return p.takeLocked(holder), true
}

// Wait is Take that waits for its turn until ctx ends, and then returns ctx's error.
func (p *Places) Wait(ctx context.Context, holder string) (give func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.freeLocked(holder) {
		defer p.mu.Unlock()
		return p.takeLocked(holder), nil
	}
	w := &waiter{holder, make(chan struct{})}
	p.mu.waiting = append(p.mu.waiting, w)
	p.mu.Unlock()
	select {
	case <-w.ready:
		return sync.OnceFunc(func() { p.give(holder) }), nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	i := slices.Index(p.mu.waiting, w)
	if i >= 0 {
		p.mu.waiting = slices.Delete(p.mu.waiting, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 { // it got its place concurrently
		p.give(holder)
	}
	return nil, ctx.Err()
}

// Taken returns the number of taken places.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.taken
}

func (p *Places) freeLocked(holder string) bool {
	return p.mu.taken < p.total && (holder == "" || p.mu.by[holder] < p.each)
}

func (p *Places) takeLocked(holder string) (give func()) {
	p.mu.taken++
	if holder != "" {
		p.mu.by[holder]++
	}
	return sync.OnceFunc(func() { p.give(holder) })
}

// give returns a place, which the first eligible waiter takes.
func (p *Places) give(holder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.taken--
	if holder != "" {
		if p.mu.by[holder]--; p.mu.by[holder] == 0 {
			delete(p.mu.by, holder)
		}
	}
	p.mu.waiting = slices.DeleteFunc(p.mu.waiting, func(w *waiter) bool {
		if !p.freeLocked(w.holder) {
			return false
		}
		p.takeLocked(w.holder) // Wait returns its give
		close(w.ready)
		return true
	})
}
