package sim

import (
	"sync"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/orders"
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
}

// promise is an acknowledged order.
type promise struct {
	placed    orders.Order
	cancelled bool
}

func newLedger() *ledger {
	return &ledger{orders: make(map[gocql.UUID]*promise), nothing: make(map[gocql.UUID]bool), parcels: make(map[gocql.UUID]bool), garbage: make(map[gocql.UUID]bool), late: make(map[gocql.UUID]bool)}
}

// arrive returns the number of a new customer.
func (l *ledger) arrive() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived++
	return l.arrived
}

// placed records an order acknowledged as stored.
func (l *ledger) placed(o orders.Order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[o.ID] = &promise{placed: o}
}

// refused records an order reported as not stored.
func (l *ledger) refused(id gocql.UUID) {
	if id == (gocql.UUID{}) {
		return // failed before it had an id
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nothing[id] = true
}

// moved records a stored event of a parcel.
func (l *ledger) moved(event gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parcels[event] = true
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

// cancelled records an order acknowledged as cancelled.
func (l *ledger) cancelled(id gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[id].cancelled = true
}
