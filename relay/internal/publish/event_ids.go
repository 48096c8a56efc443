package publish

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// eventIDs contains the events in progress and the dedup index, in stripes by event id: the
// aggregate of a row that could not be read is known only when the row is corrected, so
// the stripe of an aggregate does not contain all of its ids. It is safe for concurrent use.
type eventIDs struct {
	stripes     [dedup.Stripes]idStripe
	open, bytes atomic.Int64 // events in progress, and their size
	near        dedup.Near
}

// idStripe is a part of the events. An event is added to the index in the same step that
// ends its progress, so a caller finds it in one of them.
type idStripe struct {
	mu struct {
		sync.Mutex
		items map[gocql.UUID]*item // unacknowledged events, by id; the stripe of its lane guards an item
		index *dedup.Index
	}
	_ [104]byte // no two locks are in one cache line
}

// init prepares an empty index for that many events which the sweep reader has not read.
func (x *eventIDs) init(most func() int) {
	for i := range x.stripes {
		s := &x.stripes[i]
		s.mu.items, s.mu.index = make(map[gocql.UUID]*item), dedup.New(most)
	}
}

// lock returns the stripe of an event, locked.
func (x *eventIDs) lock(id gocql.UUID) *idStripe {
	s := &x.stripes[dedup.StripeOf(id)]
	s.mu.Lock()
	return s
}

// each calls f with each stripe's items and index, locked.
func (x *eventIDs) each(f func(items map[gocql.UUID]*item, index *dedup.Index)) {
	for i := range x.stripes {
		s := &x.stripes[i]
		s.mu.Lock()
		f(s.mu.items, s.mu.index)
		s.mu.Unlock()
	}
}

// find returns the event's item if it is in progress. published reports whether the index
// has the event, and inTopic whether it is then known to be in its topic.
func (x *eventIDs) find(id gocql.UUID) (it *item, published bool, inTopic dedup.InTopic) {
	s := x.lock(id)
	defer s.mu.Unlock()
	if it = s.mu.items[id]; it != nil {
		return it, false, false
	}
	published, inTopic = s.mu.index.Find(id)
	return nil, published, inTopic
}

// horizon returns the newest write time, in microseconds, of the evicted ids of the event's
// stripe: the event, if published and written later, is in the index.
func (x *eventIDs) horizon(id gocql.UUID) int64 {
	s := x.lock(id)
	defer s.mu.Unlock()
	return s.mu.index.Horizon()
}

// begin adds an item, and reports whether its event was neither in progress nor published.
func (x *eventIDs) begin(it *item) bool {
	id := it.event.ID.UUID()
	s := x.lock(id)
	defer s.mu.Unlock()
	if s.mu.items[id] != nil || s.mu.index.Has(id) {
		return false
	}
	s.mu.items[id] = it
	x.open.Add(1)
	x.bytes.Add(it.bytes)
	return true
}

// end removes an item, and adds its event to the index if it is published.
func (x *eventIDs) end(it *item, published bool) {
	s := x.lock(it.event.ID.UUID())
	defer s.mu.Unlock()
	delete(s.mu.items, it.event.ID.UUID())
	x.open.Add(-1)
	x.bytes.Add(-it.bytes)
	if published {
		s.addLocked(it, true)
	}
}

// add adds an event to the index; in reports whether it is in its topic.
func (x *eventIDs) add(it *item, in dedup.InTopic) {
	s := x.lock(it.event.ID.UUID())
	defer s.mu.Unlock()
	s.addLocked(it, in)
}

func (s *idStripe) addLocked(it *item, in dedup.InTopic) {
	switch {
	case it.scanned: // it is not offered again
	case it.shown:
		s.mu.index.AddShown(it.event.ID.UUID(), it.written, in)
	default:
		s.mu.index.Add(it.event.ID.UUID(), it.written, in)
	}
}

// addUnsent adds an event whose dead letter is settled, unless the index has it.
func (x *eventIDs) addUnsent(id gocql.UUID, written int64) {
	s := x.lock(id)
	defer s.mu.Unlock()
	if !s.mu.index.Has(id) {
		s.mu.index.AddUnsent(id, written)
	}
}

// reserve is addUnsent of an event that is not in progress either, and reports whether it added it.
func (x *eventIDs) reserve(id gocql.UUID, written int64) (added bool) {
	s := x.lock(id)
	defer s.mu.Unlock()
	if added = s.mu.items[id] == nil && !s.mu.index.Has(id); added {
		s.mu.index.AddUnsent(id, written)
	}
	return added
}

// show records that the sweep reader has read the row of a published event, as Index.Show.
func (x *eventIDs) show(id gocql.UUID, written int64) (first bool) {
	s := x.lock(id)
	defer s.mu.Unlock()
	return s.mu.index.Show(id, written)
}

// forget removes an event from the index.
func (x *eventIDs) forget(id gocql.UUID) {
	s := x.lock(id)
	defer s.mu.Unlock()
	s.mu.index.Forget(id)
}

// pass records that the sweep reader has read the log up to a write time, as Index.Pass.
func (x *eventIDs) pass(upTo int64, now time.Time, every time.Duration) {
	x.each(func(_ map[gocql.UUID]*item, index *dedup.Index) { index.Pass(upTo, now, every) })
}

// seed adds events that were published before the given time, in microseconds.
func (x *eventIDs) seed(found *dedup.Found, before int64) {
	stripe, now := 0, time.Now()
	x.each(func(_ map[gocql.UUID]*item, index *dedup.Index) {
		index.Seed(found, stripe, before, now)
		stripe++
	})
}

// size returns the numbers of published events that the sweep reader has not read, and that
// it has.
func (x *eventIDs) size() (fresh, shown int) {
	x.each(func(_ map[gocql.UUID]*item, index *dedup.Index) {
		fresh, shown = fresh+index.Fresh(), shown+index.Shown()
	})
	return fresh, shown
}
