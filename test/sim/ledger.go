package sim

import (
	"sync"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/orders"
)

// ledger is what the customers were told by the order service.
type ledger struct {
	customers sync.WaitGroup

	mu      sync.Mutex
	arrived int
	orders  map[gocql.UUID]*promise // those that the service said it stored
	nothing map[gocql.UUID]bool     // those of which it said that nothing is stored
	parcels map[gocql.UUID]bool     // events of parcels that the database said it stored
	late    map[gocql.UUID]bool     // events whose rows became visible behind the sweep
	garbage map[gocql.UUID]bool     // aggregates with a row that is no event
}

// promise is an order as the service promised it.
type promise struct {
	placed    orders.Order
	cancelled bool
}

func newLedger() *ledger {
	return &ledger{orders: make(map[gocql.UUID]*promise), nothing: make(map[gocql.UUID]bool), parcels: make(map[gocql.UUID]bool), garbage: make(map[gocql.UUID]bool), late: make(map[gocql.UUID]bool)}
}

// arrive counts a customer in and gives it a number.
func (l *ledger) arrive() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived++
	return l.arrived
}

// placed notes an order that the service said it stored.
func (l *ledger) placed(o orders.Order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[o.ID] = &promise{placed: o}
}

// refused notes an order of which the service said that it stored nothing.
func (l *ledger) refused(id gocql.UUID) {
	if id == (gocql.UUID{}) {
		return // it had not come to the point of giving it an id
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nothing[id] = true
}

// moved notes an event of a parcel that is stored.
func (l *ledger) moved(event gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parcels[event] = true
}

// isLate notes an event whose row becomes visible behind the sweep.
func (l *ledger) isLate(event gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late[event] = true
}

// spoilt notes an aggregate that has a row which is no event.
func (l *ledger) spoilt(aggregate gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.garbage[aggregate] = true
}

// cancelled notes that the service said an order is cancelled.
func (l *ledger) cancelled(id gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[id].cancelled = true
}
