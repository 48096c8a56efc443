package publish

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// groupKey identifies the dead letters with one rule and equal errors.
type groupKey struct{ rule, failure string }

// maxGroups bounds the number of groups. Beyond it, all further errors of a rule share
// one group.
const maxGroups = 1000

// canaryStages contains the number of dead letters of a large group that are replayed
// in each stage. A stage begins when all dead letters of the previous one are
// published; after the last stage the number is unlimited.
var canaryStages = []int{1, 2, 5, 20, 100}

// letterGroup contains the dead letters with equal errors under one rule. A large group
// is replayed with canaries: when one fails with the same error again, the others wait.
// Publisher.mu guards it.
type letterGroup struct {
	groupKey
	strategy string
	letters  int // dead letters of the group in memory
	// waiting contains chains that are due but have to wait; asked contains those of
	// which an operator requested a replay now.
	waiting, asked map[*chain]struct{}

	underWay      int       // replays in progress
	stage         int       // index into canaryStages; len(canaryStages) means no limit
	started, fine int       // replays started and succeeded in the stage
	last          time.Time // start of the last replay
	stops         int       // consecutive failed canaries
	until         time.Time // earliest time of the next canary
	canaryText    string    // error of the last failed canary
	reason        string    // why the waiting chains wait
	since         time.Time
}

// canaryIdle is the time without a replay after which a group starts again with canaries.
const canaryIdle = time.Minute

// group returns the group of a dead letter, or nil if rule is empty.
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

// room returns how many replays of the group may start now, -1 for no limit. Groups of
// at most above dead letters need no canary; a negative above disables canaries.
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
	default: // more may be in progress than the stage allows if the group was small before
		return max(0, canaryStages[g.stage]-g.started)
	}
}

// begin records the start of a replay.
func (g *letterGroup) begin(now time.Time) {
	g.underWay++
	g.started++
	g.last = now
}

// succeeded records a replay that published its dead letter.
func (g *letterGroup) succeeded() {
	g.underWay--
	g.stops, g.fine = 0, g.fine+1
	if g.stage < len(canaryStages) && g.fine >= canaryStages[g.stage] {
		g.stage, g.started, g.fine = g.stage+1, g.underWay, 0
	}
}

// returned records a replay that ended without a result, or with a result that does not
// apply to the rest of the group.
func (g *letterGroup) returned() {
	g.underWay--
	g.started = max(g.started-1, 0)
}

// died records a replay that failed with the same error again. It reports whether the
// rest of the group starts to wait because of it. The group waits until next, the time
// of the retry, or, if next is zero, with a backoff that grows with each stop.
func (g *letterGroup) died(now, next time.Time, above int, text string) (stop bool) {
	g.underWay--
	if above < 0 || g.letters <= above {
		g.started = max(g.started-1, 0)
		return false
	}
	stop = !now.Before(g.until) // concurrent failures count as one stop
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

// wanted allows another canary immediately, because an operator requested a replay.
func (g *letterGroup) wanted() { g.until, g.stops = time.Time{}, 0 }

// enter makes a chain that is due wait in the group.
func (g *letterGroup) enter(d *letters, c *chain) {
	c.gate = g
	if c.head().asked {
		g.asked[c] = struct{}{}
	} else {
		g.waiting[c] = struct{}{}
	}
	d.gated[g] = struct{}{}
}

// leave removes a waiting chain from the group.
func (g *letterGroup) leave(d *letters, c *chain) {
	c.gate = nil
	delete(g.asked, c)
	delete(g.waiting, c)
	if len(g.asked)+len(g.waiting) == 0 {
		delete(d.gated, g)
	}
}

// open releases up to n of the chains in from, all of them if n is negative.
func (g *letterGroup) open(d *letters, from map[*chain]struct{}, n int) {
	for c := range from {
		if n == 0 {
			return
		}
		n--
		d.touch(c)
	}
}
