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

// Story is a simulation that a test controls step by step, with the relay's production
// intervals. One goroutine executes the steps in sequence.
type Story struct {
	w     *world
	began time.Time
}

// Tell starts the system, runs the steps, and checks the promises as in every simulation.
func Tell(t *testing.T, tell func(*Story)) {
	t.Helper()
	simulate(t, shortSeed, func(s *settings) {
		s.relay.TailMaxInterval, s.relay.IdleDelay = relay.Defaults().TailMaxInterval, relay.Defaults().IdleDelay
		s.relay.MaxInFlightRecords, s.relay.MaxStreamBacklog = relay.Defaults().MaxInFlightRecords, relay.Defaults().MaxStreamBacklog
	}, func(w *world) {
		time.Sleep(time.Minute) // wait until idle
		tell(&Story{w: w, began: time.Now()})
	})
}

// Now returns the time since the start of the story.
func (s *Story) Now() time.Duration { return time.Since(s.began) }

// Wait waits for d of virtual time.
func (s *Story) Wait(d time.Duration) { time.Sleep(d) }

// Place places an order with one request and returns the answer.
func (s *Story) Place(customer string) (orders.Order, error) {
	got, err := s.w.services[0].Create(context.Background(), orders.NewOrder{
		Country: "Finland", Currency: "EUR", Invoice: customer,
		Lines: []orders.NewLine{{SKU: "71053", Quantity: 6, UnitPrice: "3.39"}},
	}, orders.WriteOptions{})
	var lost *orders.UnavailableError
	switch {
	case err == nil:
		s.w.ledger.recordPlaced(got.Order)
	case errors.As(err, &lost) && !lost.Unknown:
		s.w.ledger.recordRefused(lost.OrderID)
	}
	return got.Order, err
}

// StopBroker makes the broker refuse all connections.
func (s *Story) StopBroker() { s.w.net.cut(broker) }

// StartBroker undoes StopBroker.
func (s *Story) StartBroker() { s.w.net.mend(broker) }

// RefuseWrites makes the database answer every write of an order with too few live
// replicas, until the returned function is called.
func (s *Story) RefuseWrites() (mend func()) {
	return s.w.add(1, engine.OpLoggedBatch, faults.Rule{Name: "unavailable", Effect: faults.Effect{Failure: faults.Unavailable(2, 1)}})
}

// KillRelay stops the relay like SIGKILL.
func (s *Story) KillRelay() { s.w.crashRelay() }

// StartRelay starts a relay after KillRelay.
func (s *Story) StartRelay() { s.w.startRelay() }

// Orders returns the number of stored orders.
func (s *Story) Orders() int { return s.count("orders") }

// Events returns the number of rows of the outbox.
func (s *Story) Events() int { return s.count(events) }

func (s *Story) count(table string) int {
	s.w.t.Helper()
	var n int
	if err := s.w.session.Query("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		s.w.t.Fatalf("count %s: %v", table, err)
	}
	return n
}

// Published returns the number of records in the topics.
func (s *Story) Published() int {
	s.w.tap.mu.Lock()
	defer s.w.tap.mu.Unlock()
	return len(s.w.tap.records)
}

// PublishedAt returns the time in the story when the broker stored the first event of an
// order.
func (s *Story) PublishedAt(order gocql.UUID) (time.Duration, bool) {
	s.w.tap.mu.Lock()
	defer s.w.tap.mu.Unlock()
	for _, r := range s.w.tap.records {
		if r.AggregateID.UUID() == order {
			return r.at.Sub(s.began), true
		}
	}
	return 0, false
}
