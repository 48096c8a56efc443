package publish

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// gateLocked returns why a due dead letter of the group has to wait, empty if it has not,
// and until when if that is known.
func (r *Replayer) gateLocked(g *chains.Group, asked bool, now time.Time) (why string, until time.Time) {
	p := r.p
	if !asked {
		if open, next := p.cfg.Rules.Window(g.Rule, now); !open {
			return "an off-peak window, which begins at " + next.UTC().Format(time.RFC3339), next
		}
		if names := p.cfg.Rules.Conditions(g.Rule); len(names) > 0 {
			if s := p.calls.State(); s != BreakerClosed && slices.Contains(names, dlq.ConditionBreaker) {
				return fmt.Sprintf("a condition, %s: the breaker is %s", dlq.ConditionBreaker, s), time.Time{}
			}
			if r.health == nil {
				r.recheck = true
				return "its conditions, which are being checked", time.Time{}
			}
			if why := r.health.first(names); why != "" {
				return "a condition, " + why, time.Time{}
			}
		}
	}
	if g.Room(now, p.cfg.ReplayCanary) != 0 {
		return "", time.Time{}
	}
	if now.Before(g.Until) {
		return "the next canary, at " + g.Until.UTC().Format(time.RFC3339) + ": the last one failed again: " + g.CanaryText, g.Until
	}
	return "canaries of equal dead letters, which are in progress", time.Time{}
}

// openGatesLocked continues chains that no longer have to wait.
func (r *Replayer) openGatesLocked(now time.Time, wait *time.Duration) {
	d := r.p.mu.deadLetters
	for g := range d.Gates() {
		for _, from := range []struct {
			chains map[*chains.Chain]struct{}
			asked  bool
		}{{g.Asked, true}, {g.Waiting, false}} {
			if len(from.chains) == 0 {
				continue
			}
			why, until := r.gateLocked(g, from.asked, now)
			if why != "" {
				sooner(wait, now, until)
				if g.Reason != why {
					g.Reason, g.Since, r.recheck = why, now, true
				}
				continue
			}
			g.Open(d.Set, from.chains, g.Room(now, r.p.cfg.ReplayCanary))
		}
	}
}

// mustCheck reports whether the conditions and holds must be checked now.
func (r *Replayer) mustCheck() bool {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	state, since := p.calls.State(), time.Since(r.checked)
	moved := state != r.state
	r.state = state
	return moved || since >= p.cfg.StrategyPoll || r.recheck && since >= p.cfg.ReplayPoll
}

// maxNoted is the number of holds that are shown.
const maxNoted = 200

// check checks the conditions, if a dead letter depends on one, and stores in the
// database why dead letters wait.
func (r *Replayer) check(ctx context.Context) {
	p, d := r.p, r.p.mu.deadLetters
	r.checked = time.Now()
	p.mu.Lock()
	conditional := d.Waiting(dlq.StrategyConditional) > 0
	p.mu.Unlock()
	var health conditions
	load, err := p.load.measure(ctx)
	if conditional {
		health = r.conditions(ctx, load, err)
	}
	p.mu.Lock()
	r.health, r.recheck = health, false
	now := p.now()
	holds := make(map[chains.GroupKey]dlq.Hold)
	for g := range d.Gates() {
		if len(holds) == maxNoted {
			break
		}
		if why, until := r.gateLocked(g, len(g.Waiting) == 0, now); why != "" {
			if g.Reason != why {
				g.Reason, g.Since = why, now
			}
			holds[g.GroupKey] = dlq.Hold{Rule: g.Rule, FailureKey: g.Failure, Reason: why, Since: g.Since, Until: until}
		}
	}
	p.mu.Unlock()
	for k, h := range holds {
		if err := p.table.store.SetHold(ctx, p.table.name, h); err != nil {
			r.log.Debug("failed to store a hold of dead letters", "err", err)
			return
		}
		if r.noted[k].Reason != h.Reason {
			r.log.Info("dead letters wait", "rule", h.Rule, "for", h.Reason)
		}
		r.noted[k] = h
	}
	for k, h := range r.noted {
		if _, still := holds[k]; still {
			continue
		}
		if err := p.table.store.DropHold(ctx, p.table.name, h); err != nil {
			r.log.Debug("failed to delete a hold of dead letters", "err", err)
			return
		}
		delete(r.noted, k)
	}
}
