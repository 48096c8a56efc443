package dedup

import (
	"slices"
	"time"

	"github.com/gocql/gocql"
)

const (
	// maxGaps is the maximum number of skipped numbers that the relay remembers per
	// aggregate. The newest are kept.
	maxGaps = 1000
	// recentNumbers is the number of last sequence numbers of an aggregate in which
	// missing ones count.
	recentNumbers = 32
	// The relay queries skipped numbers again with the next event of their aggregate,
	// then after twice as many events each time (maxGapStep at most), and in any case
	// with the first event after gapsAgain.
	maxGapStep = 1024
	gapsAgain  = time.Minute
)

// gaps contains the numbers that an aggregate skipped. Their events may still become
// visible.
type gaps struct {
	numbers []int64 // ascending
	step    int64   // events until the next lookup
	due     int64   // sequence number of the event that triggers the next lookup
	at      time.Time
}

func (g *gaps) found(seq int64) {
	if i, ok := slices.BinarySearch(g.numbers, seq); ok {
		g.numbers = slices.Delete(g.numbers, i, i+1)
	}
}

// skip records that the aggregate continues now with seq although the numbers from next to
// seq-1 are missing.
func (x *Lines) skip(aggregate gocql.UUID, next, seq int64, now time.Time) {
	g := x.gaps[aggregate]
	if g == nil {
		g = &gaps{step: 1, due: seq + 1, at: now}
		x.gaps[aggregate] = g
	}
	for n := max(next, seq-maxGaps); n < seq; n++ {
		g.numbers = append(g.numbers, n)
	}
	if over := len(g.numbers) - maxGaps; over > 0 {
		g.numbers = slices.Delete(g.numbers, 0, over)
	}
}

// IsGap reports whether the aggregate continued without event seq.
func (x *Lines) IsGap(aggregate gocql.UUID, seq int64) bool {
	g := x.gaps[aggregate]
	if g == nil {
		return false
	}
	_, ok := slices.BinarySearch(g.numbers, seq)
	return ok
}

// GapsDue reports whether the skipped numbers of the aggregate are due for another lookup
// before event seq now.
func (x *Lines) GapsDue(aggregate gocql.UUID, seq int64, now time.Time) bool {
	if len(x.gaps) == 0 {
		return false
	}
	g := x.gaps[aggregate]
	return g != nil && (seq >= g.due || now.Sub(g.at) >= gapsAgain)
}

// GapRange returns the range that contains the skipped numbers of an aggregate that has
// some; it excludes to.
func (x *Lines) GapRange(aggregate gocql.UUID) (from, to int64) {
	n := x.gaps[aggregate].numbers
	return n[0], n[len(n)-1] + 1
}

// LookedUp records a lookup before event seq now and schedules the next one.
func (x *Lines) LookedUp(aggregate gocql.UUID, seq int64, now time.Time) {
	if g := x.gaps[aggregate]; g != nil {
		g.step = min(2*g.step, maxGapStep)
		g.due, g.at = seq+g.step, now
	}
}

// HasGaps reports whether the aggregate skipped numbers.
func (x *Lines) HasGaps(aggregate gocql.UUID) bool { return x.gaps[aggregate] != nil }

// Missing returns how many of the last recentNumbers numbers before next are gaps of the
// aggregate.
func (x *Lines) Missing(aggregate gocql.UUID, next int64) int {
	g := x.gaps[aggregate]
	if g == nil {
		return 0
	}
	i, _ := slices.BinarySearch(g.numbers, next-recentNumbers)
	return len(g.numbers) - i
}
