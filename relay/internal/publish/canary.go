package publish

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// groupKey names dead letters that died of equal errors and that one rule is for.
type groupKey struct{ rule, failure string }

// maxGroups bounds how many errors of rules are told apart.
const maxGroups = 1000

// canaryStages are how many letters of a large group are replayed before it is
// clear that the others may follow: each stage begins when all of the one before
// are published.
var canaryStages = []int{1, 2, 5, 20, 100}

// letterGroup are letters with equal errors under one rule. Large groups are
// replayed behind canaries; when one dies of the same error again, the others
// wait rather than try in vain. The publisher's lock guards it.
type letterGroup struct {
	groupKey
	strategy string
	letters  int // of it in memory
	// waiting are chains that are due and have to wait, asked those of them that
	// an operator wants now.
	waiting, asked map[*chain]struct{}

	underWay      int       // being replayed
	stage         int       // of canaryStages; behind the last one all go
	started, fine int       // in the stage
	last          time.Time // when one was started last
	stops         int       // in a row
	until         time.Time // no canary before, after canaryText was its error
	canaryText    string
	reason        string // why the waiting ones wait
	since         time.Time
}

// canaryIdle is after how long without a replay there are canaries again.
const canaryIdle = time.Minute

// group returns the group of a letter; nil without a rule.
func (d *letters) group(rule, failure string) *letterGroup {
	if rule == "" {
		return nil
	}
	k := groupKey{rule, failure}
	g, ok := d.groups[k]
	if !ok && len(d.groups) >= maxGroups {
		k.failure = ""
		g, ok = d.groups[k]
	}
	if !ok {
		g = &letterGroup{groupKey: k, strategy: d.rules.Strategy(rule), waiting: make(map[*chain]struct{}), asked: make(map[*chain]struct{})}
		d.groups[k] = g
	}
	return g
}

// room is how many letters of the group may be started now, -1 for any number.
// Groups of up to above letters need no canary; above is negative without canaries.
func (g *letterGroup) room(now time.Time, above int) int {
	if g.underWay == 0 && now.Sub(g.last) > canaryIdle {
		g.stage, g.started, g.fine = 0, 0, 0
	}
	switch {
	case above < 0:
		return -1
	case now.Before(g.until):
		return 0
	case g.letters <= above || g.stage == len(canaryStages):
		return -1
	default: // more may be under way than the stage has, from when the group was small
		return max(0, canaryStages[g.stage]-g.started)
	}
}

// begin notes that a letter of the group is being replayed.
func (g *letterGroup) begin(now time.Time) {
	g.underWay++
	g.started++
	g.last = now
}

// succeeded notes that a letter of the group is published.
func (g *letterGroup) succeeded() {
	g.underWay--
	g.stops, g.fine = 0, g.fine+1
	if g.stage < len(canaryStages) && g.fine >= canaryStages[g.stage] {
		g.stage, g.started, g.fine = g.stage+1, g.underWay, 0
	}
}

// returned notes that a letter of the group is back without an answer, or with
// one that says nothing about the others.
func (g *letterGroup) returned() {
	g.underWay--
	g.started = max(g.started-1, 0)
}

// died notes that a letter of the group died of the same error again, and says
// whether the others have to wait because of it: until next, the time when it is
// tried again, or for longer each time if it is not.
func (g *letterGroup) died(now, next time.Time, above int, text string) (stop bool) {
	g.underWay--
	if above < 0 || g.letters <= above {
		g.started = max(g.started-1, 0)
		return false
	}
	stop = !now.Before(g.until) // several may come back at once
	if stop {
		g.stops++
	}
	g.stage, g.started, g.fine = 0, 0, 0
	if next.IsZero() {
		next = now.Add(dlq.Delay(g.stops - 1))
	}
	if next.After(g.until) {
		g.until = next
	}
	g.canaryText = text
	return stop
}

// wanted says that an operator wants letters of the group now, whatever became of
// the last canary. There is another one.
func (g *letterGroup) wanted() { g.until, g.stops = time.Time{}, 0 }

// enter lets a chain that is due wait in the group.
func (g *letterGroup) enter(d *letters, c *chain) {
	c.gate = g
	if c.head().asked {
		g.asked[c] = struct{}{}
	} else {
		g.waiting[c] = struct{}{}
	}
	d.gated[g] = struct{}{}
}

// leave is the end of that.
func (g *letterGroup) leave(d *letters, c *chain) {
	c.gate = nil
	delete(g.asked, c)
	delete(g.waiting, c)
	if len(g.asked)+len(g.waiting) == 0 {
		delete(d.gated, g)
	}
}

// open lets up to n of the chains in from go on, any number if n is negative.
func (g *letterGroup) open(d *letters, from map[*chain]struct{}, n int) {
	for c := range from {
		if n == 0 {
			return
		}
		n--
		d.touch(c)
	}
}
