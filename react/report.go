package react

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// reportTimeout bounds one report.
const reportTimeout = 2 * time.Second

// reporting writes the progress of rules to the database. It does not affect
// their work if the database does not accept the reports.
type reporting struct {
	cfg     *Config
	runners []*runner
	started time.Time
	silent  bool // the last one could not be written
}

func newReporting(cfg *Config) *reporting { return &reporting{cfg: cfg, started: time.Now().UTC()} }

// run reports until ctx ends.
func (r *reporting) run(ctx context.Context) {
	tick := time.NewTicker(r.cfg.Report)
	defer tick.Stop()
	for {
		r.once(ctx, delivery.Running)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// once writes one report. It logs the first failure and the recovery.
func (r *reporting) once(ctx context.Context, state string) {
	all := make([]delivery.Report, len(r.runners))
	for i, one := range r.runners {
		all[i] = one.report(state, r.started)
	}
	write, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	err := r.cfg.Deliveries.Report(write, all)
	switch {
	case err != nil && ctx.Err() == nil && !r.silent:
		r.silent = true
		r.cfg.Logger.Warn("failed to write the progress of rules; others see stale progress", "err", err)
	case err == nil && r.silent:
		r.silent = false
		r.cfg.Logger.Info("progress of rules written again")
	}
}

// report returns the progress of the rule.
func (r *runner) report(state string, started time.Time) delivery.Report {
	rule, m := &r.rule.Rule, r.metrics
	kind := "plugin"
	if _, ok := r.rule.plugin.(*notice); ok {
		kind = "target"
	}
	out := delivery.Report{
		Rule: rule.Name, Instance: r.cfg.Instance,
		Definition: delivery.Definition{
			Plugin: rule.To, Kind: kind, Topics: rule.Topics, Types: rule.Types, When: rule.When, Order: rule.Order, Attempts: rule.Attempts,
			TimeoutSeconds: rule.Timeout.Seconds(), Concurrency: rule.Concurrency, Queue: rule.Queue,
		},
		Progress: delivery.Progress{
			State: state, StartedAt: started, UnderWay: len(r.slots), Stuck: int(value(m.stuck)), OldestSeconds: r.oldest().Seconds(),
			Records: int64(value(m.records)), Delivered: int64(value(m.delivered)), Failed: int64(value(m.failed)), Errors: int64(value(m.errors)),
			Undecided: int64(value(m.undecided)), Repeats: int64(value(m.repeats)), StoreErrors: int64(value(m.unsaved)),
		},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out.Partitions, out.Waiting, out.LastError = len(r.partitions), len(r.jobs), r.lastError
	if !r.lastFailed.IsZero() {
		at := r.lastFailed.UTC()
		out.LastErrorAt = &at
	}
	return out
}

// failing notes the error of an attempt.
func (r *runner) failing(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastError, r.lastFailed = text, time.Now()
}
