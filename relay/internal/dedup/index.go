package dedup

import (
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// Index contains the ids of published events, and the next number of each aggregate. It is
// not safe for concurrent use.
//
// The tail reader and later the sweep reader read every row of the log. An id is
// fresh until the sweep has read its row, and shown for some time after that,
// because a retry or a batchlog replay may have written the row twice. Ids are in
// sets of BytesPerID bytes per id, which are evicted one at a time.
type Index struct {
	maxFresh, maxShown, maxAggregates int

	// fresh contains the events whose rows the sweep has not read, by time of
	// publication, the newest last.
	fresh  []freshEvents
	freshN int
	isNear bool // freshN is near maxFresh, see Near
	// shown contains the events whose rows the sweep read last, older those before them.
	shown, older shownEvents
	horizon      int64 // see Horizon

	// lines contains the aggregates published last, olderLines those before them.
	lines, olderLines map[gocql.UUID]Line
	// gaps contains the skipped numbers by aggregate. busy reports whether events of
	// an aggregate are in progress; its lane then has its line.
	gaps map[gocql.UUID]*gaps
	busy func(gocql.UUID) bool
}

// InTopic reports whether an event that counts as published is known to be in its topic.
type InTopic bool

// Line is the known part of an aggregate's sequence: events first to next-1 were
// accepted, except gaps.
type Line struct{ First, Next int64 }

type freshEvents struct {
	ids    *idSet
	since  time.Time
	newest int64 // write time
}

type shownEvents struct {
	ids    *idSet
	newest int64
}

// New returns an index with room for maxEvents events that the sweep reader has not read,
// and for maxAggregates idle aggregates. busy reports whether events of an aggregate are in
// progress; the index calls it only within its methods.
func New(maxEvents, maxAggregates int, busy func(aggregate gocql.UUID) bool) *Index {
	return &Index{
		maxFresh: maxEvents, maxShown: max(maxEvents/4, 1), maxAggregates: max(maxAggregates/2, 1),
		shown: shownEvents{ids: newIDSet()},
		lines: make(map[gocql.UUID]Line),
		gaps:  make(map[gocql.UUID]*gaps),
		busy:  busy,
	}
}

// Has reports whether the event is in the dedup index.
func (x *Index) Has(id gocql.UUID) bool {
	for i := range slices.Backward(x.fresh) {
		if x.fresh[i].ids.has(id) {
			return true
		}
	}
	return x.shown.ids.has(id) || x.older.ids.has(id)
}

// AddUnsent adds an event that counts as published although it may be in no topic:
// its dead letter is settled.
func (x *Index) AddUnsent(id gocql.UUID, written int64) { x.Add(id, written, false) }

// Add adds an event that is published, or counts as published, before the sweep has read
// its row. The index must not contain it.
func (x *Index) Add(id gocql.UUID, written int64, how InTopic) {
	if len(x.fresh) == 0 {
		x.fresh = append(x.fresh, freshEvents{ids: newIDSet(), since: time.Now()})
	}
	b := &x.fresh[len(x.fresh)-1]
	b.ids.set(id, how)
	b.newest = max(b.newest, written)
	x.freshN++
}

// AddShown adds an event that is published, or counts as published, after the sweep has
// read its row. The index must not contain it.
func (x *Index) AddShown(id gocql.UUID, written int64, how InTopic) {
	if x.shown.ids.len() >= x.maxShown {
		x.horizon = max(x.horizon, x.older.newest)
		x.older = x.shown
		x.shown = shownEvents{ids: newIDSet()}
	}
	x.shown.ids.set(id, how)
	x.shown.newest = max(x.shown.newest, written)
}

// Show records that the sweep has read the row of a published event.
func (x *Index) Show(id gocql.UUID, written int64) {
	for i := range x.fresh {
		if how, ok := x.fresh[i].ids.find(id); ok {
			x.fresh[i].ids.remove(id)
			x.freshN--
			x.AddShown(id, written, how)
			return
		}
	}
}

// Full reports whether the index has no room for events that the sweep has not read.
func (x *Index) Full() bool { return x.freshN >= x.maxFresh }

// Find reports whether the event counts as published, and whether it is known to be
// in its topic.
func (x *Index) Find(id gocql.UUID) (out bool, in InTopic) {
	for i := range x.fresh {
		if in, ok := x.fresh[i].ids.find(id); ok {
			return true, in
		}
	}
	if in, ok := x.shown.ids.find(id); ok {
		return true, in
	}
	in, out = x.older.ids.find(id)
	return out, in
}

// Forget removes an event.
func (x *Index) Forget(id gocql.UUID) {
	for i := range x.fresh {
		if x.fresh[i].ids.remove(id) {
			x.freshN--
		}
	}
	x.shown.ids.remove(id)
	x.older.ids.remove(id)
}

// Pass records that the sweep has read the log up to the given write time, and adds
// a part to fresh when the last one is older than every. Parts below that write time
// become shown: the sweep will not read their rows, which are late or expired.
func (x *Index) Pass(upTo int64, now time.Time, every time.Duration) {
	x.fresh = slices.DeleteFunc(x.fresh, func(b freshEvents) bool {
		old := now.Sub(b.since) >= every
		if b.ids.len() > 0 && !(old && b.newest < upTo) || b.ids.len() == 0 && !old {
			return false
		}
		for id, how := range b.ids.all() {
			x.AddShown(id, b.newest, how)
		}
		x.freshN -= b.ids.len()
		return true
	})
	if n := len(x.fresh); n > 0 && now.Sub(x.fresh[n-1].since) >= every {
		x.fresh = append(x.fresh, freshEvents{ids: newIDSet(), since: now})
	}
}

// Line returns the line of an aggregate that has no events in progress.
func (x *Index) Line(aggregate gocql.UUID) (Line, bool) {
	if l, ok := x.lines[aggregate]; ok {
		return l, true
	}
	l, ok := x.olderLines[aggregate]
	return l, ok
}

// Keep stores the line of an aggregate and evicts the least recently published ones.
func (x *Index) Keep(aggregate gocql.UUID, l Line) {
	if len(x.lines) >= x.maxAggregates {
		for a := range x.gaps {
			if _, ok := x.lines[a]; !ok && !x.busy(a) {
				delete(x.gaps, a)
			}
		}
		x.olderLines, x.lines = x.lines, make(map[gocql.UUID]Line)
	}
	x.lines[aggregate] = l
}

// Advance returns the line after event seq of the aggregate is accepted.
func (x *Index) Advance(aggregate gocql.UUID, l Line, seq int64) Line {
	switch {
	case l.Next == 0:
		return Line{First: seq, Next: seq + 1}
	case seq >= l.Next:
		if seq > l.Next {
			x.skip(aggregate, l.Next, seq)
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

// Horizon returns the newest write time, in microseconds, of all evicted ids: the id of a
// published event with a later write time is in the index.
func (x *Index) Horizon() int64 { return x.horizon }

// Size returns the number of events and aggregates in the index.
func (x *Index) Size() (fresh, shown, aggregates int) {
	return x.freshN, x.shown.ids.len() + x.older.ids.len(), len(x.lines) + len(x.olderLines)
}
