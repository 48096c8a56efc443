package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/orders"
)

// load creates orders, reads each and cancels it, while change happens to the cluster.
func (w *world) load(s *orders.Service, during time.Duration) *calls {
	return w.every(50*time.Millisecond, during, func(ctx context.Context, i int) error {
		r, err := s.Create(ctx, newOrder(), orders.WriteOptions{})
		if err == nil && i%4 == 0 {
			_, err = s.Get(ctx, r.Order.ID)
		}
		if err == nil && i%4 == 1 {
			_, err = s.Cancel(ctx, r.Order.ID, orders.Cancellation{}, orders.WriteOptions{})
		}
		return err
	})
}

// A node that is frozen, killed, or frozen and then killed fails no request and
// costs at most a second; it is reported during the failure and used again
// afterwards.
func TestOrders_OneNodeAway(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"frozen": func(w *world) {
			w.after(3*time.Second, func() { w.db.Freeze(1) })
			w.after(18*time.Second, func() { w.db.Thaw(1) })
		},
		"killed": func(w *world) {
			w.after(3*time.Second, func() { w.db.Kill(1) })
			w.after(18*time.Second, func() { w.db.Restart(1) })
		},
		"frozen, then killed": func(w *world) {
			w.after(3*time.Second, func() { w.db.Freeze(1) })
			w.after(8*time.Second, func() { w.db.Kill(1) })
			w.after(18*time.Second, func() { w.db.Restart(1) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				s, err := orders.New(w.session, orders.Config{})
				if err != nil {
					w.Fatal(err)
				}
				change(w)
				var named string
				w.after(10*time.Second, func() { named = strings.Join(w.nodes.Down(), " ") })
				w.mustBeQuick(w.load(s, 25*time.Second))
				if want := w.db.NodeAddr(1).String(); named != want {
					w.Errorf("unreachable nodes %q, want %s", named, want)
				}
				if down := w.nodes.Down(); len(down) > 0 {
					w.Errorf("unreachable nodes %v after the end", down)
				}
			})
		})
	}
}

// Without a quorum requests are refused quickly, the breaker opens, and it closes
// by itself when the quorum is back.
func TestOrders_NoQuorum(t *testing.T) {
	inBubble(t, func(w *world) {
		s, err := orders.New(w.session, orders.Config{WriteBudget: 3 * time.Second})
		if err != nil {
			w.Fatal(err)
		}
		// Nodes report that two of three replicas are unavailable. Connections are
		// kept: the driver sleeps with a lock held when it loses the ones of two nodes,
		// which would stop virtual time.
		for _, kind := range []engine.OpKind{engine.OpRead, engine.OpSerialRead, engine.OpWrite, engine.OpLoggedBatch, engine.OpCAS} {
			w.db.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{kind}}, Effect: faults.Effect{Failure: faults.Unavailable(1, 2)}})
		}
		c := w.load(s, 10*time.Second)
		if len(c.failed) < len(c.took)*9/10 {
			w.Errorf("%d of %d requests failed without a quorum", len(c.failed), len(c.took))
		}
		if _, err := s.Get(w.Context(), gocql.TimeUUID()); err == nil || s.Ready(w.Context()) == nil {
			w.Errorf("a request without a quorum: %v, and the service is ready", err)
		}
		if last := c.failed[len(c.failed)-1]; !errors.Is(last, guard.ErrOpen) {
			w.Errorf("the last request failed with %v, want the breaker open", last)
		}
		w.db.Faults().Clear()
		time.Sleep(15 * time.Second)
		w.mustBeQuick(w.load(s, 5*time.Second))
	})
}

func newOrder() orders.NewOrder {
	customer := "17850"
	return orders.NewOrder{
		CustomerID: &customer, Country: "United Kingdom", Currency: "GBP",
		Lines: []orders.NewLine{{SKU: "84029E", Description: "LANTERN", Quantity: 6, UnitPrice: "3.39"}},
	}
}
