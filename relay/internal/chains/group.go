package chains

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// GroupKey identifies the dead letters with one rule and equal errors.
type GroupKey struct{ Rule, Failure string }

// maxGroups bounds the number of groups. Beyond it, all further errors of a rule share
// one group.
const maxGroups = 1000

// canaryStages contains the number of dead letters of a large group that are replayed
// in each stage. A stage begins when all dead letters of the previous one are
// published; after the last stage the number is unlimited.
var canaryStages = []int{1, 2, 5, 20, 100}

// Group contains the dead letters with equal errors under one rule. A large group
// is replayed with canaries: when one fails with the same error again, the others wait.
type Group struct {
	GroupKey
	strategy    string
	DeadLetters int // dead letters of the group in memory
	// Waiting contains chains that are due but have to wait; Asked contains the chains of
	// which an operator requested a replay now.
	Waiting, Asked map[*Chain]struct{}

	underWay      int       // replays in progress
	stage         int       // index into canaryStages; len(canaryStages) means no limit
	started, fine int       // replays started and succeeded in the stage
	last          time.Time // start of the last replay
	stops         int       // consecutive failed canaries
	Until         time.Time // earliest time of the next canary
	CanaryText    string    // error of the last failed canary
	Reason        string    // why the waiting chains wait
	Since         time.Time
}

// canaryIdle is the time without a replay after which a group starts again with canaries.
const canaryIdle = time.Minute

// Group returns the group of a dead letter, or nil if rule is empty.
func (d *Set) Group(rule, failure string) *Group {
	if rule == "" {
		return nil
	}
	k := GroupKey{rule, failure}
	g, ok := d.groups[k]
	if !ok && len(d.groups) >= maxGroups {
		k.Failure = ""
		g, ok = d.groups[k]
	}
	if !ok {
		g = &Group{GroupKey: k, strategy: d.rules.Strategy(rule), Waiting: make(map[*Chain]struct{}), Asked: make(map[*Chain]struct{})}
		d.groups[k] = g
	}
	return g
}

// Room returns how many replays of the group may start now, -1 for no limit. Groups of
// at most above dead letters need no canary; a negative above disables canaries.
func (g *Group) Room(now time.Time, above int) int {
	if g.underWay == 0 && now.Sub(g.last) > canaryIdle {
		g.stage, g.started, g.fine = 0, 0, 0
	}
	switch {
	case above < 0:
		return -1
	case now.Before(g.Until):
		return 0
	case g.DeadLetters <= above || g.stage == len(canaryStages):
		return -1
	default: // more may be in progress than the stage allows if the group was small before
		return max(0, canaryStages[g.stage]-g.started)
	}
}

// Begin records the start of a replay.
func (g *Group) Begin(now time.Time) {
	g.underWay++
	g.started++
	g.last = now
}

// Succeeded records a replay that published its dead letter.
func (g *Group) Succeeded() {
	g.underWay--
	g.stops, g.fine = 0, g.fine+1
	if g.stage < len(canaryStages) && g.fine >= canaryStages[g.stage] {
		g.stage, g.started, g.fine = g.stage+1, g.underWay, 0
	}
}

// Returned records a replay that ended without a result, or with a result that does not
// apply to the rest of the group.
func (g *Group) Returned() {
	g.underWay--
	g.started = max(g.started-1, 0)
}

// Died records a replay that failed with the same error again. It reports whether the
// rest of the group starts to wait because of it. The group waits until next, the time
// of the retry, or, if next is zero, with a backoff that grows with each stop.
func (g *Group) Died(now, next time.Time, above int, text string) (stop bool) {
	g.underWay--
	if above < 0 || g.DeadLetters <= above {
		g.started = max(g.started-1, 0)
		return false
	}
	stop = !now.Before(g.Until) // concurrent failures count as one stop
	if stop {
		g.stops++
	}
	g.stage, g.started, g.fine = 0, 0, 0
	if next.IsZero() {
		next = now.Add(dlq.Delay(g.stops - 1))
	}
	if next.After(g.Until) {
		g.Until = next
	}
	g.CanaryText = text
	return stop
}

// Wanted allows another canary immediately, because an operator requested a replay.
func (g *Group) Wanted() { g.Until, g.stops = time.Time{}, 0 }

// enter makes a chain that is due wait in the group.
func (g *Group) enter(d *Set, c *Chain) {
	c.gate = g
	if c.Head().Asked {
		g.Asked[c] = struct{}{}
	} else {
		g.Waiting[c] = struct{}{}
	}
	d.gated[g] = struct{}{}
}

// leave removes a waiting chain from the group.
func (g *Group) leave(d *Set, c *Chain) {
	c.gate = nil
	delete(g.Asked, c)
	delete(g.Waiting, c)
	if len(g.Asked)+len(g.Waiting) == 0 {
		delete(d.gated, g)
	}
}

// Open releases up to n of the chains in from, all of them if n is negative.
func (g *Group) Open(d *Set, from map[*Chain]struct{}, n int) {
	for c := range from {
		if n == 0 {
			return
		}
		n--
		d.Touch(c)
	}
}
