package publish

import (
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// eventIDs contains the events in progress and the dedup index. An event is added to the index
// in the same step that ends its progress.
type eventIDs struct {
	now         time.Time            // of the step
	items       map[gocql.UUID]*item // unacknowledged events
	index       [dedup.Stripes]*dedup.Index
	open, bytes int64 // events in progress, and their size
}

// init prepares an empty index for that many events which the sweep reader has not read.
func (x *eventIDs) init(most func() int) {
	x.items = make(map[gocql.UUID]*item)
	for i := range x.index {
		x.index[i] = dedup.New(most)
	}
}

// of returns the part of the index that has an event.
func (x *eventIDs) of(id gocql.UUID) *dedup.Index { return x.index[dedup.SelectStripe(id)] }

// find returns the event's item if it is in progress. published reports whether the index
// has the event, and inTopic whether it is then known to be in its topic.
func (x *eventIDs) find(id gocql.UUID) (it *item, published bool, inTopic dedup.InTopic) {
	if it = x.items[id]; it != nil {
		return it, false, false
	}
	published, inTopic = x.of(id).Find(id)
	return nil, published, inTopic
}

// horizon returns the newest write time, in microseconds, of the evicted ids of the event's
// part: the event, if published and written later, is in the index.
func (x *eventIDs) horizon(id gocql.UUID) int64 { return x.of(id).Horizon() }

// begin adds an item whose event is neither in progress nor published.
func (x *eventIDs) begin(it *item) {
	x.items[it.event.ID.UUID()] = it
	x.open++
	x.bytes += it.bytes
}

// end removes an item, and adds its event to the index if it is published.
func (x *eventIDs) end(it *item, published bool) {
	delete(x.items, it.event.ID.UUID())
	x.open--
	x.bytes -= it.bytes
	if published {
		x.add(it, true)
	}
}

// add adds an event to the index; in reports whether it is in its topic.
func (x *eventIDs) add(it *item, in dedup.InTopic) {
	id := it.event.ID.UUID()
	switch {
	case it.scanned: // it is not offered again
	case it.shown:
		x.of(id).AddShown(id, it.written, in)
	default:
		x.of(id).Add(id, it.written, in, x.now)
	}
}

// addUnsent adds an event whose dead letter is settled, unless the index has it.
func (x *eventIDs) addUnsent(id gocql.UUID, written int64) {
	if index := x.of(id); !index.Has(id) {
		index.AddUnsent(id, written, x.now)
	}
}

// reserve is addUnsent of an event that is not in progress either, and reports whether it added it.
func (x *eventIDs) reserve(id gocql.UUID, written int64) (added bool) {
	if added = x.items[id] == nil && !x.of(id).Has(id); added {
		x.of(id).AddUnsent(id, written, x.now)
	}
	return added
}

// show records that the sweep reader has read the row of a published event, as Index.Show.
func (x *eventIDs) show(id gocql.UUID, written int64) (first bool) { return x.of(id).Show(id, written) }

// forget removes an event from the index.
func (x *eventIDs) forget(id gocql.UUID) { x.of(id).Forget(id) }

// pass records for a stripe that the sweep reader has read the log up to a write time, as Index.Pass.
func (x *eventIDs) pass(stripe int, upTo int64, now time.Time, every time.Duration) {
	x.index[stripe].Pass(upTo, now, every)
}

// seed adds events that were published before the given time, in microseconds.
func (x *eventIDs) seed(found *dedup.Found, before int64, now time.Time) {
	for stripe, index := range x.index {
		index.Seed(found, stripe, before, now)
	}
}

// size returns the numbers of published events that the sweep reader has not read, and that
// it has.
func (x *eventIDs) size() (fresh, shown int) {
	for _, index := range x.index {
		fresh, shown = fresh+index.Fresh(), shown+index.Shown()
	}
	return fresh, shown
}
