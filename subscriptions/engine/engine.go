package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/receipt"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// Engine runs subscriptions and implements subscriptions.Service for the partitions of
// this instance. It is safe for concurrent use.
type Engine struct {
	cfg     Config
	metrics *metrics
	changed chan struct{} // has a token after a change of the list by this instance
	holders holders
	idle    *kadm.Client // of NewIdle

	mu struct {
		sync.Mutex
		signer *receipt.Signer   // nil until Run has read the key
		groups map[string]*group // by name of the subscription
		closed bool
	}
}

var _ subscriptions.Service = (*Engine)(nil)

// New returns an Engine. It does nothing until Run is called.
func New(cfg Config) (*Engine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, changed: make(chan struct{}, 1)}
	e.mu.groups = make(map[string]*group)
	var err error
	if e.metrics, err = newMetrics(cfg.Registerer, e); err != nil {
		return nil, fmt.Errorf("subscriptions: metrics: %w", err)
	}
	return e, nil
}

// Run runs the subscriptions until ctx ends. Then it stops leasing, waits up to a few
// seconds for actions in flight, and leaves the consumer groups. While the database is not
// reachable, it retries; subscriptions that run already continue.
func (e *Engine) Run(ctx context.Context) error {
	var key []byte
	err := patiently(ctx, func() (err error) {
		if key, err = e.cfg.Store.ReceiptKey(ctx); err != nil {
			e.cfg.Logger.Warn("failed to read the key of receipts; retrying", "err", err)
		}
		return err
	})
	if err != nil {
		return nil // ctx has ended
	}
	signer, err := receipt.New(key)
	if err != nil {
		return fmt.Errorf("subscriptions: %w", err)
	}
	e.mu.Lock()
	e.mu.signer = signer
	e.mu.Unlock()
	var cleaner sync.WaitGroup
	cleaner.Go(func() { e.cleaner(ctx) })
	defer cleaner.Wait()
	tick := time.NewTicker(listInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		all, err := e.cfg.Store.List(ctx)
		switch {
		case err == nil:
			e.reconcile(ctx, all)
		case ctx.Err() == nil:
			e.cfg.Logger.Warn("failed to list subscriptions; retrying", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-e.changed:
		case <-tick.C:
		}
	}
	e.stop()
	return nil
}

// stop ends all groups and waits for them.
func (e *Engine) stop() {
	e.mu.Lock()
	e.mu.closed = true
	groups := slices.Collect(maps.Values(e.mu.groups))
	e.mu.Unlock()
	for _, g := range groups {
		g.stop()
	}
	for _, g := range groups {
		<-g.done
	}
}

// reconcile starts, changes and stops groups. A group whose subscription needs another
// client is stopped first; the next call starts it.
func (e *Engine) reconcile(ctx context.Context, all []store.Resource) {
	e.mu.Lock()
	defer e.mu.Unlock()
	want := make(map[string]bool, len(all))
	for _, r := range all {
		r.Subscription = r.WithDefaults()
		if !e.cfg.runs(&r.Subscription) {
			continue
		}
		want[r.Name] = true
		g := e.mu.groups[r.Name]
		switch {
		case g == nil:
		case g.hasEnded():
			delete(e.mu.groups, r.Name)
		case g.update(r):
			continue
		default:
			g.stop()
			continue
		}
		g = newGroup(e, r)
		e.mu.groups[r.Name] = g
		go g.run(context.WithoutCancel(ctx))
	}
	for name, g := range e.mu.groups {
		if !want[name] {
			if g.hasEnded() {
				delete(e.mu.groups, name)
			}
			g.stop()
		}
	}
}

// running returns the groups.
func (e *Engine) running() []*group {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.mu.groups))
}

// group returns the group of a subscription. If the subscription is new, it waits until
// the group was started. An idle engine has no signer.
func (e *Engine) group(ctx context.Context, name string) (*group, *receipt.Signer, error) {
	if e.idle != nil {
		g, err := e.idleGroup(ctx, name)
		return g, nil, err
	}
	for n := 0; ; n++ {
		e.mu.Lock()
		g, signer, closed := e.mu.groups[name], e.mu.signer, e.mu.closed
		e.mu.Unlock()
		switch {
		case closed || signer == nil:
			return nil, nil, fmt.Errorf("this instance is starting or stopping: %w", subscriptions.ErrUnavailable)
		case g != nil:
			return g, signer, nil
		}
		if n == 0 {
			if _, err := e.cfg.Store.Get(ctx, name); err != nil {
				return nil, nil, unavailable(err)
			}
			e.poke()
		}
		if err := retry.Wait(ctx, 20*time.Millisecond); err != nil || n > 50 {
			return nil, nil, fmt.Errorf("subscription %q is starting: %w", name, subscriptions.ErrUnavailable)
		}
	}
}

// poke lets Run read the list now.
func (e *Engine) poke() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// unavailable wraps the errors that a caller may retry.
func unavailable(err error) error {
	if err == nil || errors.Is(err, subscriptions.ErrNotFound) || errors.Is(err, subscriptions.ErrVersion) {
		return err
	}
	return fmt.Errorf("%w: %w", subscriptions.ErrUnavailable, err)
}

// patiently repeats f until it returns nil, or ctx ends.
func patiently(ctx context.Context, f func() error) error {
	for n := 1; ; n++ {
		if err := f(); err == nil {
			return nil
		}
		if err := retry.Wait(ctx, retry.Backoff(100*time.Millisecond, 5*time.Second, n)); err != nil {
			return err
		}
	}
}
