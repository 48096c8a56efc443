package dedup

import (
	"iter"
	"math/bits"
	"time"

	"github.com/gocql/gocql"
)

// Found contains the events that read-back found in the topics.
type Found struct {
	ids  *idSet
	runs map[gocql.UUID]run
	// scanned contains the last number that a scan has published, of at most maxScanned aggregates.
	scanned map[gocql.UUID]int64
	crowded bool // there are more
}

// maxScanned bounds the aggregates with events that a scan has published. They may be all of a table.
const maxScanned = 1 << 18

// run contains the events found of an aggregate: the last one, and a mask of it and the
// 63 before it, bit 0 being the last.
type run struct {
	last int64
	mask uint64
}

// NewFound returns an empty set.
func NewFound() Found {
	return Found{ids: new(idSet), runs: make(map[gocql.UUID]run), scanned: make(map[gocql.UUID]int64)}
}

// Add adds an event; sequence is 0 if it has none, or proves nothing.
func (b *Found) Add(id, aggregate gocql.UUID, sequence int64) {
	b.ids.set(id, true)
	if sequence == 0 {
		return
	}
	r := b.runs[aggregate]
	switch d := sequence - r.last; {
	case r.mask == 0 || d >= 64:
		r = run{sequence, 1}
	case d > 0:
		r = run{sequence, r.mask<<d | 1}
	case d > -64:
		r.mask |= 1 << -d
	}
	b.runs[aggregate] = r
}

// AddScanned adds the number of an event that a scan has published. No reader offers it again, so its
// id is not needed, but the aggregate may have other events.
func (b *Found) AddScanned(aggregate gocql.UUID, sequence int64) {
	if last, ok := b.scanned[aggregate]; ok || len(b.scanned) < maxScanned {
		b.scanned[aggregate] = max(last, sequence)
	} else {
		b.crowded = true
	}
}

// Size returns the number of events.
func (b *Found) Size() int { return b.ids.len() }

// Lines returns the lines of the aggregates; none if any may end before an event that a scan has
// published.
func (b *Found) Lines() iter.Seq2[gocql.UUID, Line] {
	return func(yield func(gocql.UUID, Line) bool) {
		if b.crowded {
			return
		}
		for aggregate, r := range b.runs {
			if last := b.scanned[aggregate]; last > r.last {
				r = run{last, 1}
			}
			if !yield(aggregate, r.line()) {
				return
			}
		}
	}
}

// Line returns the events up to the last one that have no gap between them. Only their
// ids identify earlier events.
func (r run) line() Line {
	return Line{First: r.last - int64(bits.TrailingZeros64(^r.mask)) + 1, Next: r.last + 1}
}

// Seed adds the events that were published before this relay started; newest limits their write
// times, in microseconds. The index takes over their memory.
func (x *Index) Seed(found *Found, newest int64, now time.Time) {
	if found.Size() == 0 {
		return
	}
	// Later events are added to another part, which is evicted later.
	x.fresh = append(x.fresh, freshEvents{ids: found.ids, since: now, newest: newest}, freshEvents{ids: new(idSet), since: now})
	x.freshN += found.Size()
}
