package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// Story is a simulation that a test tells step by step, with the relay at the
// pace of production. Its steps are taken one after the other, by one goroutine.
type Story struct {
	w     *world
	began time.Time
}

// Tell lets everything start, tells the story, and holds what it left behind to
// the promises, as all simulations are.
func Tell(t *testing.T, tell func(*Story)) {
	t.Helper()
	simulate(t, shortSeed, func(s *settings) {
		s.relay.TailMaxInterval, s.relay.IdleDelay = relay.DefaultTailMaxInterval, relay.DefaultIdleDelay
		s.relay.MaxInFlightRecords, s.relay.MaxStreamBacklog = relay.DefaultMaxInFlightRecords, relay.DefaultMaxStreamBacklog
	}, func(w *world) {
		time.Sleep(time.Minute) // all is quiet
		tell(&Story{w: w, began: time.Now()})
	})
}

// Now is how long the story has lasted.
func (s *Story) Now() time.Duration { return time.Since(s.began) }

// Wait lets time pass.
func (s *Story) Wait(d time.Duration) { time.Sleep(d) }

// Place places an order with one request, and returns what its caller is told.
func (s *Story) Place(customer string) (orders.Order, error) {
	got, err := s.w.services[0].Create(context.Background(), orders.NewOrder{
		Country: "Finland", Currency: "EUR", Invoice: customer,
		Lines: []orders.NewLine{{SKU: "71053", Quantity: 6, UnitPrice: "3.39"}},
	}, orders.WriteOptions{})
	var lost *orders.UnavailableError
	switch {
	case err == nil:
		s.w.ledger.placed(got.Order)
	case errors.As(err, &lost) && !lost.Unknown:
		s.w.ledger.refused(lost.OrderID)
	}
	return got.Order, err
}

// StopBroker lets the broker refuse all connections.
func (s *Story) StopBroker() { s.w.net.cut(broker) }

// StartBroker undoes StopBroker.
func (s *Story) StartBroker() { s.w.net.mend(broker) }

// RefuseWrites lets the database answer every write of an order that too few
// replicas are alive, until the function that it returns is called.
func (s *Story) RefuseWrites() (mend func()) {
	return s.w.add(1, engine.OpLoggedBatch, faults.Rule{Name: "unavailable", Effect: faults.Effect{Failure: faults.Unavailable(2, 1)}})
}

// KillRelay ends the relay as SIGKILL does.
func (s *Story) KillRelay() { s.w.crashRelay() }

// StartRelay starts a relay after KillRelay.
func (s *Story) StartRelay() { s.w.startRelay() }

// Orders and Events are how many rows are stored.
func (s *Story) Orders() int { return s.count("orders") }

// Events is how many rows the outbox has.
func (s *Story) Events() int { return s.count(events) }

func (s *Story) count(table string) int {
	s.w.t.Helper()
	var n int
	if err := s.w.session.Query("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		s.w.t.Fatalf("count %s: %v", table, err)
	}
	return n
}

// Published is how many records the topics have.
func (s *Story) Published() int {
	s.w.tap.mu.Lock()
	defer s.w.tap.mu.Unlock()
	return len(s.w.tap.records)
}

// PublishedAt is when in the story the broker had the first event of an order.
func (s *Story) PublishedAt(order gocql.UUID) (time.Duration, bool) {
	s.w.tap.mu.Lock()
	defer s.w.tap.mu.Unlock()
	for _, r := range s.w.tap.records {
		if r.AggregateID == order {
			return r.at.Sub(s.began), true
		}
	}
	return 0, false
}
