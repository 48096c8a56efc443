package react

import (
	"context"
	"sync"

	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// Reactor runs rules. Make one with New.
type Reactor struct {
	cfg     Config
	rules   []*compiled
	metrics *metrics
}

// New validates the configuration and compiles the rules without connecting.
// The error contains every problem, with its rule and position.
func New(cfg Config) (*Reactor, error) {
	cfg = cfg.withDefaults()
	rules, err := cfg.compile()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &Reactor{cfg: cfg, rules: rules, metrics: m}, nil
}

// Run delivers until ctx ends, waits up to DrainTimeout for attempts in flight,
// commits the settled offsets, and returns nil. An error means that a rule
// could not start; the others are stopped.
//
// Run waits for an unavailable broker or database.
func (r *Reactor) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	var once sync.Once
	var failed error
	rep := newReporting(&r.cfg)
	for _, rule := range r.rules {
		one := newRunner(&r.cfg, rule, r.metrics.of(rule.Name, rule.To))
		rep.runners = append(rep.runners, one)
		all.Go(func() {
			if err := one.run(ctx); err != nil {
				once.Do(func() { failed = err })
				stop(err)
			}
		})
	}
	var beside sync.WaitGroup
	beside.Go(func() { rep.run(ctx) })
	all.Wait()
	stop(nil)
	beside.Wait()
	rep.once(context.WithoutCancel(ctx), delivery.Stopped)
	return failed
}
