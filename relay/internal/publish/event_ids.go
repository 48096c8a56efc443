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
	index       *dedup.Index
	open, bytes int64 // events in progress, and their size
}

// init prepares an empty index for that many events which the sweep reader has not read.
func (x *eventIDs) init(most func() int) {
	x.items, x.index = make(map[gocql.UUID]*item), dedup.New(most)
}

// find returns the event's item if it is in progress. published reports whether the index
// has the event, and inTopic whether it is then known to be in its topic.
func (x *eventIDs) find(id gocql.UUID) (it *item, published bool, inTopic dedup.InTopic) {
	if it = x.items[id]; it != nil {
		return it, false, false
	}
	published, inTopic = x.index.Find(id)
	return nil, published, inTopic
}

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
		x.index.AddShown(id, it.written, in)
	default:
		x.index.Add(id, it.written, in, x.now)
	}
}

// addUnsent adds an event whose dead letter is settled, unless the index has it.
func (x *eventIDs) addUnsent(id gocql.UUID, written int64) {
	if !x.index.Has(id) {
		x.index.Add(id, written, false, x.now)
	}
}

// reserve is addUnsent of an event that is not in progress either, and reports whether it added it.
func (x *eventIDs) reserve(id gocql.UUID, written int64) (added bool) {
	if added = x.items[id] == nil && !x.index.Has(id); added {
		x.index.Add(id, written, false, x.now)
	}
	return added
}
