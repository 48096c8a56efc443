package orders

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func TestService_Update(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	country := "EIRE"
	r, err := b.Update(t.Context(), o.ID, Update{
		Country: &country, Address: &Address{Name: "A. Murphy", Street: "1 Main St", City: "Cork"},
		Lines: []NewLine{{SKU: "22632", Quantity: 3, UnitPrice: "1.5"}},
	}, WriteOptions{IfVersion: []int64{1}})
	if err != nil || r.Order.Version != 2 || r.Order.Total.String() != "4.50" || r.Order.Lines[0].UnitPrice.String() != "1.50" {
		t.Fatalf("Update() = %+v, %v", r, err)
	}
	// Omitted fields keep their values.
	r, err = b.Update(t.Context(), o.ID, Update{Address: &Address{Name: "B. Murphy", Street: "2 Main St", City: "Cork", Region: "Munster", Postcode: "T12"}}, WriteOptions{})
	if err != nil || r.Order.Country != country || r.Order.Total.String() != "4.50" || len(r.Order.Lines) != 1 {
		t.Fatalf("Update() = %+v, %v", r, err)
	}
	if r, err = b.Confirm(t.Context(), o.ID, Confirmation{}, WriteOptions{}); err != nil || r.Order.ConfirmedAt == nil {
		t.Fatalf("Confirm() = %+v, %v", r, err)
	}
	at := time.Date(2010, 12, 3, 0, 0, 0, 0, time.UTC)
	shipped, err := b.Ship(t.Context(), o.ID, Shipment{Carrier: "An Post", Tracking: "RR1", ShippedAt: &at}, WriteOptions{})
	if err != nil || !shipped.Order.ShippedAt.Equal(at) {
		t.Fatalf("Ship() = %+v, %v", shipped, err)
	}
	b.mustBe(t, o.ID, EventCreated, EventUpdated, EventUpdated, EventUpdated, EventUpdated)
	got := b.readStored(t, o.ID)
	last, err := fromEvent(&got.events[4])
	if err != nil {
		t.Fatal(err)
	}
	for name, have := range map[string]Order{"row": *got.order, "event": last} {
		if *have.Address != *r.Order.Address || have.Country != country || !have.ShippedAt.Equal(at) || !have.ConfirmedAt.Equal(*r.Order.ConfirmedAt) ||
			have.Carrier != "An Post" || have.Tracking != "RR1" || have.CancelledAt != nil || have.Total.String() != "4.50" {
			t.Errorf("%s = %+v", name, have)
		}
	}
}

// The order's currency, not the request's, decides how fine a price may be.
func TestService_UpdateHoldsPricesToTheCurrency(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	var bad *InvalidError
	for _, keyed := range []string{"", "k"} {
		_, err := b.Update(t.Context(), o.ID, Update{Lines: []NewLine{{SKU: "a", Quantity: 1, UnitPrice: "1.005"}}}, WriteOptions{IdempotencyKey: keyed})
		if !errors.As(err, &bad) || bad.Fields[0].Field != "lines[0].unit_price" {
			t.Errorf("Update() = %v, want the field of the price", err)
		}
	}
	b.mustBe(t, o.ID, EventCreated)
}

func TestService_StaleVersionIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range Changes {
		o := b.mustCreate(t)
		if c == ChangeShip {
			if _, err := b.do(t, ChangeConfirm, o.ID, WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		before := b.readStored(t, o.ID)
		for _, versions := range [][]int64{{}, {7}, {0, 9}} {
			var stale *PreconditionError
			if _, err := b.do(t, c, o.ID, WriteOptions{IfVersion: versions}); !errors.As(err, &stale) || stale.Order.Version != before.order.Version {
				t.Errorf("%s if %v: %v, want a *PreconditionError", c, versions, err)
			}
		}
		if after := b.readStored(t, o.ID); len(after.events) != len(before.events) || after.order.Version != before.order.Version {
			t.Errorf("%s: a refused change was stored: %+v", c, after)
		}
		if _, err := b.do(t, c, o.ID, WriteOptions{IfVersion: []int64{5, before.order.Version}}); err != nil {
			t.Errorf("%s of the right version: %v", c, err)
		}
	}
}

// Of several changes of the same version, one wins.
func TestService_OneChangeOfEachVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	for version := int64(1); version <= 3; version++ {
		var won, lost atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				_, err := b.do(t, ChangeUpdate, o.ID, WriteOptions{IfVersion: []int64{version}})
				var stale *PreconditionError
				switch {
				case err == nil:
					won.Add(1)
				case errors.As(err, &stale):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || lost.Load() != 7 {
			t.Errorf("version %d: %d won and %d lost, want 1 and 7", version, won.Load(), lost.Load())
		}
	}
	b.mustBe(t, o.ID, EventCreated, EventUpdated, EventUpdated, EventUpdated)
}

// A retry finds its change behind later ones, returns the first response, and
// writes nothing.
func TestService_RetryOfAnEarlierChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	first, err := b.do(t, ChangeUpdate, o.ID, WriteOptions{IdempotencyKey: "k", IfVersion: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Change{ChangeConfirm, ChangeShip} {
		if _, err := b.do(t, c, o.ID, WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	again, err := b.do(t, ChangeUpdate, o.ID, WriteOptions{IdempotencyKey: "k", IfVersion: []int64{1}})
	if err != nil || !again.Replayed || again.Order.Version != 2 || again.Order.EventID != first.Order.EventID || again.Order.Status != StatusPlaced {
		t.Errorf("again = %+v, %v, want the original version 2", again, err)
	}
	var reuse *KeyReuseError
	if _, err := b.do(t, ChangeUpdate, o.ID, WriteOptions{IdempotencyKey: "k", IfVersion: []int64{4}}); !errors.As(err, &reuse) {
		t.Errorf("the key with another If-Match = %v, want a *KeyReuseError", err)
	}
	b.mustBe(t, o.ID, EventCreated, EventUpdated, EventUpdated, EventUpdated)
}

// rowCount counts the rows of the events that a session reads.
type rowCount struct{ atomic.Int64 }

// ObserveQuery counts the rows of a page.
func (c *rowCount) ObserveQuery(_ context.Context, q gocql.ObservedQuery) {
	if strings.Contains(q.Statement, "FROM outbox_messages") {
		c.Add(int64(q.Rows))
	}
}

// A change of an order with many events reads as few of them as one of a new order, also on a
// server that fails serial reads against the clustering order.
func TestService_ChangeOfALongOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	const events = 40
	for range events - 1 {
		if _, err := b.do(t, ChangeUpdate, o.ID, WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var rows rowCount
	cluster := scyllatest.Cluster(b.Node, schema.DefaultKeyspace)
	cluster.QueryObserver = &rows
	session, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sessions.Close(session) })
	observed := &fixture{World: world.World{Node: b.Node, Session: session}}
	observed.Service = observed.another(t)
	for i, opts := range []WriteOptions{{}, {IdempotencyKey: "k"}} {
		rows.Store(0)
		if r, err := observed.do(t, ChangeUpdate, o.ID, opts); err != nil || r.Order.Version != events+1+int64(i) {
			t.Fatalf("Update() = %+v, %v", r, err)
		}
		if n := rows.Load(); n < 1 || n > 2 {
			t.Errorf("with %+v the change read %d events, want 1 or 2", opts, n)
		}
	}
}

// A decided insert with a lost response, followed by another change, is found
// in its place and not repeated.
func TestService_DecidedUnseenBehindAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	other := b.another(t)
	b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}, Table: "outbox_messages"}, Count: 1,
		Effect: faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateDecided},
	})
	done := make(chan error, 1)
	go func() {
		r, err := b.do(t, ChangeUpdate, o.ID, WriteOptions{})
		if err == nil && r.Order.Version != 2 {
			err = fmt.Errorf("version %d, want 2", r.Order.Version)
		}
		done <- err
	}()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		if _, err := other.Confirm(t.Context(), o.ID, Confirmation{}, WriteOptions{IfVersion: []int64{2}}); err == nil {
			break
		}
	}
	if err := <-done; err != nil {
		t.Errorf("Update() = %v", err)
	}
	b.mustBe(t, o.ID, EventCreated, EventUpdated, EventUpdated)
}

// Updates of an order are bounded, but its other changes stay possible.
func TestService_UpdatesAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := testOrder(t)
	o.Version = MaxVersion
	e, err := o.event(EventUpdated, nil)
	if err != nil {
		t.Fatal(err)
	}
	if applied, err := b.appendEvent(t, e); err != nil || !applied {
		t.Fatal(applied, err)
	}
	var conflict *ConflictError
	if _, err := b.do(t, ChangeUpdate, o.ID, WriteOptions{}); !errors.As(err, &conflict) || conflict.problem() != problemTooOften {
		t.Errorf("Update() = %v, want %s", err, problemTooOften)
	}
	if r, err := b.do(t, ChangeConfirm, o.ID, WriteOptions{}); err != nil || r.Order.Version != MaxVersion+1 {
		t.Errorf("Confirm() = %+v, %v", r, err)
	}
}

func TestHTTP_Changes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := newHandler(t, b.Service, apiserver.Config{})
	created := world.Request(t, h, "POST", "/v1/orders", goodBody)
	id, _ := created.Body["id"].(string)
	self := "/v1/orders/" + id
	patch := `{"address":{"name":"A","street":"S","city":"C"},"lines":[{"sku":"1","quantity":2,"unit_price":"0.99"}]}`

	world.Request(t, h, "PATCH", self, patch).MustBeProblem(t, 428, problemNeedsMatch)
	stale := world.Request(t, h, "PATCH", self, patch, "If-Match", `"9", W/"1"`)
	stale.MustBeProblem(t, 412, problemStale)
	if stale.Header.Get("ETag") != `"1"` || stale.Body["order_id"] != id {
		t.Errorf("stale: %v %s, want the current ETag", stale.Header, stale.Text)
	}
	r := world.Request(t, h, "PATCH", self, patch, "If-Match", created.Header.Get("ETag"), "Idempotency-Key", "p", "Content-Type", "application/merge-patch+json")
	if r.Status != 200 || r.Header.Get("ETag") != `"2"` || r.Body["total"] != "1.98" {
		t.Fatalf("patch = %d %s", r.Status, r.Text)
	}
	if again := world.Request(t, h, "PATCH", self, patch, "If-Match", created.Header.Get("ETag"), "Idempotency-Key", "p"); again.Text != r.Text || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("patch again = %d %s, want the first response", again.Status, again.Text)
	}
	unconfirmed := world.Request(t, h, "POST", self+"/ship", "")
	unconfirmed.MustBeProblem(t, 409, problemUnconfirmed)
	if unconfirmed.Body["current_status"] != "placed" {
		t.Errorf("ship = %s, want the current status", unconfirmed.Text)
	}
	if r := world.Request(t, h, "POST", self+"/confirm", "", "If-Match", "*"); r.Status != 200 || r.Body["status"] != "confirmed" {
		t.Errorf("confirm = %d %s", r.Status, r.Text)
	}
	if r := world.Request(t, h, "POST", self+"/ship", `{"carrier":"DHL","tracking":"7"}`, "If-Match", `"3"`); r.Status != 200 || r.Body["status"] != "shipped" || r.Body["tracking"] != "7" {
		t.Errorf("ship = %d %s", r.Status, r.Text)
	}
	refused := world.Request(t, h, "PATCH", self, patch, "If-Match", `"4"`)
	refused.MustBeProblem(t, 409, problemShipped)
	if refused.Body["current_status"] != "shipped" || !strings.Contains(fmt.Sprint(refused.Body["detail"]), "shipped") {
		t.Errorf("patch after shipping = %s", refused.Text)
	}
	uuid, err := gocql.ParseUUID(id)
	if err != nil {
		t.Fatal(err)
	}
	b.mustBe(t, uuid, EventCreated, EventUpdated, EventUpdated, EventUpdated)
}
