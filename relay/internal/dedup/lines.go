package dedup

import (
	"time"

	"github.com/gocql/gocql"
)

// Line is the known part of an aggregate's sequence: events first to next-1 were
// accepted, except gaps.
type Line struct{ First, Next int64 }

// Lines contains the lines of aggregates without events in progress, and the
// numbers that aggregates skipped. It is not safe for concurrent use.
type Lines struct {
	most func() int // aggregates

	// lines contains the aggregates published last, older those before them.
	lines, older map[gocql.UUID]Line
	// gaps contains the skipped numbers by aggregate. busy reports whether events of
	// an aggregate are in progress; its lane then has its line.
	gaps map[gocql.UUID]*gaps
	busy func(gocql.UUID) bool
	// doubts are the aggregates whose lines are in doubt.
	doubts map[gocql.UUID]struct{}
}

// NewLines returns lines of most aggregates, which may change. busy reports
// whether events of an aggregate are in progress. Both are called only within the methods.
func NewLines(most func() int, busy func(aggregate gocql.UUID) bool) *Lines {
	return &Lines{most: most, lines: make(map[gocql.UUID]Line), gaps: make(map[gocql.UUID]*gaps), busy: busy}
}

// Len returns the number of aggregates.
func (x *Lines) Len() int { return len(x.lines) + len(x.older) }

// Line returns the line of an aggregate that has no events in progress.
func (x *Lines) Line(aggregate gocql.UUID) (Line, bool) {
	if l, ok := x.lines[aggregate]; ok {
		return l, true
	}
	l, ok := x.older[aggregate]
	return l, ok
}

// Keep stores the line of an aggregate and evicts the least recently published ones.
func (x *Lines) Keep(aggregate gocql.UUID, l Line) {
	if len(x.lines) >= max(x.most()/2, 1) {
		for a := range x.gaps {
			if _, ok := x.lines[a]; !ok && !x.busy(a) {
				delete(x.gaps, a)
			}
		}
		for a := range x.doubts {
			if _, kept := x.lines[a]; !kept && !x.busy(a) {
				delete(x.doubts, a)
			}
		}
		x.older, x.lines = x.lines, make(map[gocql.UUID]Line)
	}
	x.lines[aggregate] = l
}

// Advance returns the line after event seq of the aggregate is accepted now.
func (x *Lines) Advance(aggregate gocql.UUID, l Line, seq int64, now time.Time) Line {
	switch {
	case l.Next == 0:
		return Line{First: seq, Next: seq + 1}
	case seq >= l.Next:
		if seq > l.Next {
			x.skip(aggregate, l.Next, seq, now)
		}
		l.Next = seq + 1
	case x.IsGap(aggregate, seq):
		g := x.gaps[aggregate]
		if g.found(seq); len(g.numbers) == 0 {
			delete(x.gaps, aggregate)
		}
	}
	return l
}
