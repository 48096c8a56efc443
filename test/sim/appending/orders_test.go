package appending

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A change of an order whose rows could not be written, and that nobody reads, is not lost when
// its event expires: its version is never given again. Orders that are up to date are left alone.
func TestOrders_AChangeOutlivesItsEvent(t *testing.T) {
	for name, conf := range versions {
		t.Run(name, func(t *testing.T) {
			expiring(t, conf, func(t *testing.T, w world.World) {
				s := newOrders(t, w)
				id, untouched := create(t, s), create(t, s)
				w.Fault(1, faults.Effect{Failure: faults.Unavailable(0, 1)}, engine.OpLoggedBatch)
				if v, err := move(t, s, id, "Norway", 1); err != nil || v != 2 {
					t.Fatalf("the change made version %d, %v, want 2", v, err)
				}
				if v := rowVersion(t, w, id); v != 1 {
					t.Fatalf("the row has version %d, want it stale", v)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { newOrders(t, w).Sweep(ctx); close(ended) }()
				time.Sleep(rowTTL/2 + time.Minute)
				if v := rowVersion(t, w, id); v != 2 {
					t.Errorf("after half of the TTL the row has version %d, want 2", v)
				}
				logged := 0
				for _, l := range w.Log(t) {
					if l.Aggregate == untouched {
						logged++
					}
				}
				if logged != 1 {
					t.Errorf("the event of an order that is up to date has %d rows in the log, want 1", logged)
				}
				time.Sleep(rowTTL)
				stale, ok := errors.AsType[*orders.PreconditionError](func() error { _, err := move(t, s, id, "Sweden", 1); return err }())
				if !ok || stale.Order.Version != 2 || stale.Order.Country != "Norway" {
					t.Errorf("a change of version 1 is refused with %+v, want version 2", stale)
				}
				if v, err := move(t, s, id, "Sweden", 2); err != nil || v != 3 {
					t.Errorf("the next change made version %d, %v, want 3", v, err)
				}
				stop()
				<-ended
			})
		})
	}
}

func newOrders(t *testing.T, w world.World) *orders.Service {
	t.Helper()
	s, err := orders.New(w.Session, orders.Config{RowTTL: rowTTL})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t *testing.T, s *orders.Service) gocql.UUID {
	t.Helper()
	customer := "17850"
	r, err := s.Create(t.Context(), orders.NewOrder{
		CustomerID: &customer, Country: "Kenya", Currency: "GBP", Lines: []orders.NewLine{{SKU: "22633", Quantity: 6, UnitPrice: "1.85"}},
	}, orders.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Order.ID
}

// move changes the country of an order at a version.
func move(t *testing.T, s *orders.Service, id gocql.UUID, country string, version int64) (int64, error) {
	t.Helper()
	r, err := s.Update(t.Context(), id, orders.Update{Country: &country}, orders.WriteOptions{IfVersion: []int64{version}})
	return r.Order.Version, err
}

func rowVersion(t *testing.T, w world.World, id gocql.UUID) (version int64) {
	t.Helper()
	if err := w.Session.Query("SELECT version FROM orders WHERE id = ?", id).Scan(&version); err != nil {
		t.Fatal(err)
	}
	return version
}
