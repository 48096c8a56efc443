package relay

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// The answer to a change of an order is lost, its caller gives up, and the relay is
// restarted. The next change comes five minutes later and makes the event of the first
// visible, with its old time: both are published, in order, with and without the tail.
func TestLateOrder_IsPublishedWithTheNextChange(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for name, tail := range map[string]string{"tail": TailOn, "sweep alone": TailOff} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Tail = tail })
				defer w.close()
				admin := relaytest.Connect(t, w.db, "", false)
				if err := schema.Migrate(t.Context(), admin, schema.Options{Components: schema.Components()}); err != nil {
					t.Fatal(err)
				}
				admin.Close()
				service, err := orders.New(w.session, orders.Config{AttemptTimeout: time.Second, WriteBudget: 10 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				_, stop := w.run()
				time.Sleep(10 * time.Second)
				made, err := service.Create(t.Context(), orders.NewOrder{
					Country: "Malta", Currency: "EUR", Lines: []orders.NewLine{{SKU: "a", Quantity: 1, UnitPrice: "1"}},
				}, orders.WriteOptions{})
				if err != nil {
					t.Fatal(err)
				}
				update := func(country string) error {
					o, err := service.Get(t.Context(), made.Order.ID)
					if err != nil {
						t.Fatal(err)
					}
					_, err = service.Update(t.Context(), o.ID, orders.Update{Country: &country}, orders.WriteOptions{IfVersion: []int64{o.Version}})
					return err
				}
				time.Sleep(time.Minute)
				w.db.Faults().MustAdd(faults.CASTimeout(true))
				w.db.Faults().MustAdd(faults.Rule{ // all but the one before the insert
					Match: faults.Match{Kinds: []engine.OpKind{engine.OpSerialRead}, Table: "outbox_messages"}, Skip: 1, Effect: faults.Effect{Failure: faults.Unavailable(1, 2)},
				})
				if err := update("Gozo"); err == nil {
					t.Error("the first change is answered although its answer is lost")
				}
				w.db.Faults().Clear()
				time.Sleep(time.Minute) // the checkpoints pass the time of the first change
				if err := stop(); err != nil {
					t.Error(err)
				}
				_, stop = w.run()
				time.Sleep(5 * time.Minute)
				if got := w.consume("OrderUpdated"); len(got) != 0 {
					t.Errorf("%d events are published before anybody could see them", len(got))
				}
				if err := update("Comino"); err == nil {
					t.Error("the second change did not find the first") // its version is the one that Get read
				}
				if err := update("Comino"); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				got := w.consume("OrderUpdated")
				if len(got) != 2 || got[0].Sequence != 2 || got[1].Sequence != 3 {
					for _, d := range got {
						t.Logf("published at offset %d: seq %d", d.Offset, d.Sequence)
					}
					t.Errorf("published %d events, want the changes 2 and 3, once each", len(got))
				}
			})
		})
	}
}
