package dedup

import (
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// Index contains the ids of published events. It is not safe for concurrent use.
//
// The tail reader and later the sweep reader read every row of the log. An id is
// fresh until the sweep has read its row, and shown for some time after that,
// because a retry or a batchlog replay may have written the row twice. Ids are in
// sets of BytesPerID bytes per id, which are evicted one at a time.
type Index struct {
	most func() int // events that the sweep has not read

	// fresh contains the events whose rows the sweep has not read, by time of
	// publication, the newest last.
	fresh  []freshEvents
	freshN int
	// shown contains the events whose rows the sweep read last, older those before them.
	shown, older shownEvents
	horizon      int64 // see Horizon
}

// InTopic reports whether an event that counts as published is known to be in its topic.
type InTopic bool

type freshEvents struct {
	ids    *idSet
	since  time.Time
	newest int64 // write time
}

type shownEvents struct {
	ids    *idSet
	newest int64
}

// New returns an index that has room for most events which the sweep reader has not read. The
// caller keeps that limit, which may change: see Fresh.
func New(most func() int) *Index {
	return &Index{most: most, shown: shownEvents{ids: new(idSet)}}
}

// Has reports whether the event is in the dedup index.
func (x *Index) Has(id gocql.UUID) bool {
	has, _ := x.Find(id)
	return has
}

// Add adds an event that is published now, or counts as published because its dead letter is
// settled, before the sweep has read its row. The index must not contain it.
func (x *Index) Add(id gocql.UUID, written int64, how InTopic, now time.Time) {
	if len(x.fresh) == 0 {
		x.fresh = append(x.fresh, freshEvents{ids: new(idSet), since: now})
	}
	b := &x.fresh[len(x.fresh)-1]
	b.ids.set(id, how)
	b.newest = max(b.newest, written)
	x.freshN++
}

// AddShown adds an event that is published, or counts as published, after the sweep has
// read its row. The index must not contain it.
func (x *Index) AddShown(id gocql.UUID, written int64, how InTopic) {
	if x.shown.ids.len() >= max(x.most()/4, 1) {
		x.horizon = max(x.horizon, x.older.newest)
		x.older = x.shown
		x.shown = shownEvents{ids: new(idSet)}
	}
	x.shown.ids.set(id, how)
	x.shown.newest = max(x.shown.newest, written)
}

// Show records that the sweep has read the row of a published event. It reports whether this is
// the first row of the event that it has read; another one was stored again.
func (x *Index) Show(id gocql.UUID, written int64) (first bool) {
	for i := range x.fresh {
		if how, ok := x.fresh[i].ids.find(id); ok {
			x.fresh[i].ids.remove(id)
			x.freshN--
			x.AddShown(id, written, how)
			return true
		}
	}
	return false
}

// Find reports whether the event counts as published, and whether it is known to be
// in its topic.
func (x *Index) Find(id gocql.UUID) (has bool, in InTopic) {
	hash := hashID(&id)
	for i := range slices.Backward(x.fresh) {
		if in, ok := x.fresh[i].ids.findHash(&id, hash); ok {
			return true, in
		}
	}
	if in, ok := x.shown.ids.findHash(&id, hash); ok {
		return true, in
	}
	in, has = x.older.ids.findHash(&id, hash)
	return has, in
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
// become shown: the sweep will not read their rows, which are late or expired. One call moves a
// small share of a part, because that of a start has all events that it read back. It reports whether
// another call has to follow.
func (x *Index) Pass(upTo int64, now time.Time, every time.Duration) (more bool) {
	x.fresh = slices.DeleteFunc(x.fresh, func(b freshEvents) bool {
		if now.Sub(b.since) < every || b.ids.len() > 0 && b.newest >= upTo {
			return false
		}
		if b.ids.len() > 0 {
			passed := b.ids.takeTable()
			for id, how := range passed.all() {
				x.AddShown(id, b.newest, how)
			}
			x.freshN -= passed.n
		}
		more = more || b.ids.len() > 0
		return b.ids.len() == 0
	})
	if n := len(x.fresh); n > 0 && now.Sub(x.fresh[n-1].since) >= every {
		x.fresh = append(x.fresh, freshEvents{ids: new(idSet), since: now})
	}
	return more
}

// Horizon returns the newest write time, in microseconds, of all evicted ids: the id of a
// published event with a later write time is in the index.
func (x *Index) Horizon() int64 { return x.horizon }

// Fresh returns the number of events that the sweep reader has not read.
func (x *Index) Fresh() int { return x.freshN }

// Shown returns the number of events that the sweep reader has read.
func (x *Index) Shown() int { return x.shown.ids.len() + x.older.ids.len() }
