package relay

import (
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// gate says why a letter of the group has to wait though it is due, and until
// when if that is known. Called locked.
func (r *replayer) gate(g *letterGroup, asked bool, now time.Time) (why string, until time.Time) {
	p := r.p
	if !asked {
		if open, next := p.cfg.rules.Window(g.rule, now); !open {
			return "an off-peak window, which begins at " + next.UTC().Format(time.RFC3339), next
		}
		if names := p.cfg.rules.Conditions(g.rule); len(names) > 0 {
			if s := p.breaker.status.State; s != BreakerClosed && slices.Contains(names, dlq.ConditionBreaker) {
				return fmt.Sprintf("a condition, %s: the breaker is %s", dlq.ConditionBreaker, s), time.Time{}
			}
			if r.health == nil {
				r.recheck = true
				return "its conditions, which are being looked at", time.Time{}
			}
			if why := r.health.first(names); why != "" {
				return "a condition, " + why, time.Time{}
			}
		}
	}
	if g.room(now, p.cfg.ReplayCanary) != 0 {
		return "", time.Time{}
	}
	if now.Before(g.until) {
		return "the next canary, at " + g.until.UTC().Format(time.RFC3339) + ": the last one died again of: " + g.canaryText, g.until
	}
	return "canaries of equal letters, which are under way", time.Time{}
}

// openGates lets chains go on that wait no longer. Called locked.
func (r *replayer) openGates(now time.Time, wait *time.Duration) {
	d := r.p.letters
	for g := range d.gated {
		for _, from := range []struct {
			chains map[*chain]struct{}
			asked  bool
		}{{g.asked, true}, {g.waiting, false}} {
			if len(from.chains) == 0 {
				continue
			}
			why, until := r.gate(g, from.asked, now)
			if why != "" {
				sooner(wait, now, until)
				if g.reason != why {
					g.reason, g.since, r.recheck = why, now, true
				}
				continue
			}
			g.open(d, from.chains, g.room(now, r.p.cfg.ReplayCanary))
		}
	}
}
