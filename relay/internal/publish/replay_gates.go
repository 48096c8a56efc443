package publish

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// gateOf returns why a due dead letter of the group has to wait, empty if it has not,
// and until when if that is known.
func (c *cell) gateOf(g *chains.Group, asked bool, now time.Time) (why string, until time.Time) {
	if !asked {
		if open, next := c.cfg.Rules.Window(g.Rule, now); !open {
			return "an off-peak window, which begins at " + next.UTC().Format(time.RFC3339), next
		}
		if names := c.cfg.Rules.Conditions(g.Rule); len(names) > 0 {
			if s := c.calls.State(); s != BreakerClosed && slices.Contains(names, dlq.ConditionBreaker) {
				return fmt.Sprintf("a condition, %s: the breaker is %s", dlq.ConditionBreaker, s), time.Time{}
			}
			if c.replays.health == nil {
				c.replays.recheck = true
				return "its conditions, which are being checked", time.Time{}
			}
			if why := c.replays.health.first(names); why != "" {
				return "a condition, " + why, time.Time{}
			}
		}
	}
	if g.Room(now, c.cfg.ReplayCanary) != 0 {
		return "", time.Time{}
	}
	if now.Before(g.Until) {
		return "the next canary, at " + g.Until.UTC().Format(time.RFC3339) + ": the last one failed again: " + g.CanaryText, g.Until
	}
	return "canaries of equal dead letters, which are in progress", time.Time{}
}

// openGates continues chains that no longer have to wait.
func (c *cell) openGates(now time.Time, wait *time.Duration) {
	for g := range c.dead.Gates() {
		for _, from := range []struct {
			chains map[*chains.Chain]struct{}
			asked  bool
		}{{g.Asked, true}, {g.Waiting, false}} {
			if len(from.chains) == 0 {
				continue
			}
			why, until := c.gateOf(g, from.asked, now)
			if why != "" {
				sooner(wait, now, until)
				if g.Reason != why {
					g.Reason, g.Since, c.replays.recheck = why, now, true
				}
				continue
			}
			g.Open(c.dead.Set, from.chains, g.Room(now, c.cfg.ReplayCanary))
		}
	}
}

// mustCheck reports whether the conditions and holds must be checked now.
func (r *Replayer) mustCheck() bool {
	state, since, recheck := r.p.calls.State(), time.Since(r.checked), false
	moved := state != r.state
	r.state = state
	r.p.ask(func(c *cell) { recheck = c.replays.recheck })
	return moved || since >= r.p.cfg.StrategyPoll || recheck && since >= r.p.cfg.ReplayPoll
}

// maxNoted is the number of holds that are shown.
const maxNoted = 200

// check checks the conditions, if a dead letter depends on one, and stores in the
// database why dead letters wait.
func (r *Replayer) check(ctx context.Context) {
	p := r.p
	r.checked = time.Now()
	var health conditions
	load, err := p.load.measure(ctx)
	if p.WaitingUnder(dlq.StrategyConditional) > 0 {
		health = r.conditions(ctx, load, err)
	}
	var holds map[chains.GroupKey]dlq.Hold
	p.ask(func(c *cell) {
		c.replays.health, c.replays.recheck = health, false
		holds = c.holds()
	})
	for k, h := range holds {
		if err := p.cfg.DeadLetters.SetHold(ctx, p.cfg.tableName(), h); err != nil {
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
		if err := p.cfg.DeadLetters.DropHold(ctx, p.cfg.tableName(), h); err != nil {
			r.log.Debug("failed to delete a hold of dead letters", "err", err)
			return
		}
		delete(r.noted, k)
	}
}

// holds returns why groups of dead letters wait, of maxNoted at most.
func (c *cell) holds() map[chains.GroupKey]dlq.Hold {
	now := c.deadLetterTime()
	holds := make(map[chains.GroupKey]dlq.Hold)
	for g := range c.dead.Gates() {
		if len(holds) == maxNoted {
			break
		}
		if why, until := c.gateOf(g, len(g.Waiting) == 0, now); why != "" {
			if g.Reason != why {
				g.Reason, g.Since = why, now
			}
			holds[g.GroupKey] = dlq.Hold{Rule: g.Rule, FailureKey: g.Failure, Reason: why, Since: g.Since, Until: until}
		}
	}
	return holds
}
