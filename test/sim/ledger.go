package sim

import (
	"slices"
	"sync"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// ledger contains the answers of the order service to its customers.
type ledger struct {
	customers sync.WaitGroup

	mu      sync.Mutex
	arrived int
	orders  map[gocql.UUID]*promise // acknowledged as stored
	nothing map[gocql.UUID]bool     // reported as not stored
	parcels map[gocql.UUID]bool     // acknowledged events of parcels
	late    map[gocql.UUID]bool     // events whose rows became visible after the sweep reader passed them
	garbage map[gocql.UUID]bool     // aggregates with a row that is not an event
	recent  []outbox.Event          // the last stored events of parcels

	noEvents      map[gocql.UUID]string // reason why a stored row of another writer is refused, by its id, or by its aggregate if it has none
	replaced      map[gocql.UUID]bool   // events whose row another event has replaced
	contradicting map[place]bool        // numbers that two events have had
	twins         map[gocql.UUID]bool   // ids that events of two aggregates have
	contents      map[gocql.UUID]string // media type of an event that has it in a header
}

// place is a number of an aggregate.
type place struct {
	aggregate gocql.UUID
	seq       int64
}

// recentEvents is the number of events in ledger.recent.
const recentEvents = 20

// promise is an acknowledged order.
type promise struct {
	placed    orders.Order
	cancelled bool
}

func newLedger() *ledger {
	return &ledger{
		orders: make(map[gocql.UUID]*promise), nothing: make(map[gocql.UUID]bool), parcels: make(map[gocql.UUID]bool), garbage: make(map[gocql.UUID]bool), late: make(map[gocql.UUID]bool),
		noEvents: make(map[gocql.UUID]string), replaced: make(map[gocql.UUID]bool), contradicting: make(map[place]bool), twins: make(map[gocql.UUID]bool), contents: make(map[gocql.UUID]string),
	}
}

// arrive returns the number of a new customer.
func (l *ledger) arrive() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived++
	return l.arrived
}

// recordPlaced records an order acknowledged as stored.
func (l *ledger) recordPlaced(o orders.Order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[o.ID] = &promise{placed: o}
}

// recordRefused records an order reported as not stored.
func (l *ledger) recordRefused(id gocql.UUID) {
	if id == (gocql.UUID{}) {
		return // failed before it had an id
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nothing[id] = true
}

// recordMoved records a stored event of a parcel.
func (l *ledger) recordMoved(event gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parcels[event] = true
}

// recordStored records events of parcels for producers that write records with the same ids.
func (l *ledger) recordStored(step ...outbox.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent = append(l.recent, step...)
	l.recent = l.recent[max(0, len(l.recent)-recentEvents):]
}

// lastStored returns the last stored events of parcels.
func (l *ledger) lastStored() []outbox.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.recent)
}

// isLate records an event whose row becomes visible after the sweep reader passed it.
func (l *ledger) isLate(event gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late[event] = true
}

// spoilt records an aggregate with a row that is not an event.
func (l *ledger) spoilt(aggregate gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.garbage[aggregate] = true
}

// isNoEvent records a stored row that is no event: its id, or its aggregate if it has none, and
// the reason.
func (l *ledger) isNoEvent(id, aggregate gocql.UUID, reason string) {
	l.spoilt(aggregate)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noEvents[id] = reason
}

// isReplaced records an event whose row is replaced by another event.
func (l *ledger) isReplaced(e *outbox.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaced[e.ID.UUID()], l.contradicting[place{e.AggregateID.UUID(), e.Sequence}] = true, true
}

// isTwin records an id that events of two aggregates have.
func (l *ledger) isTwin(id gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.twins[id] = true
}

// hasType records the media type of an event that has it in a header.
func (l *ledger) hasType(event gocql.UUID, contentType string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contents[event] = contentType
}

// recordCancelled records an order acknowledged as cancelled.
func (l *ledger) recordCancelled(id gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[id].cancelled = true
}
