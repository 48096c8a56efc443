package orders

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 7e6, time.UTC)

func testNewOrder() NewOrder {
	customer, placed := "17850", time.Date(2010, 12, 1, 8, 26, 0, 0, time.UTC)
	return NewOrder{
		Invoice: "536365", CustomerID: &customer, Country: "United Kingdom", PlacedAt: &placed, Currency: "GBP",
		Lines: []NewLine{
			{SKU: "84029E", Description: "RED & WHITE <HOTTIE>", Quantity: 6, UnitPrice: "3.39"},
			{SKU: "71053", Description: "LANTERN", Quantity: 2, UnitPrice: "0.5"},
		},
	}
}

func testOrder(t testing.TB) Order {
	t.Helper()
	n := testNewOrder()
	o, err := n.build(identity{orderID: outbox.NewID().UUID(), eventID: outbox.NewID().UUID(), createdAt: testTime})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOrder_Build(t *testing.T) {
	t.Parallel()
	o := testOrder(t)
	if o.Total.String() != "21.34" || o.Version != 1 || o.Status != StatusPlaced || len(o.Lines) != 2 {
		t.Errorf("build() = %+v, want a placed order of 21.34 with 2 lines", o)
	}
	guest := testNewOrder()
	guest.CustomerID, guest.PlacedAt = nil, nil
	g, err := guest.build(identity{createdAt: testTime})
	if err != nil || g.CustomerID != nil || !g.PlacedAt.Equal(testTime) {
		t.Errorf("build() of a guest = %+v, %v", g, err)
	}
}

func TestOrder_EventHoldsTheWholeOrder(t *testing.T) {
	t.Parallel()
	o := testOrder(t)
	e, err := o.event(EventCreated, map[string]string{"traceparent": "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(e.Payload), `"RED & WHITE <HOTTIE>"`) || strings.HasSuffix(string(e.Payload), "\n") {
		t.Errorf("payload = %s, want plain text without an end of line", e.Payload)
	}
	back, err := fromEvent(&e)
	if err != nil || !reflect.DeepEqual(back, o) {
		t.Errorf("fromEvent() = %+v, %v, want %+v", back, err, o)
	}

	c := cancelOrder(o, Cancellation{CreditNote: "C1", Reason: "late"}, identity{eventID: outbox.NewID().UUID(), createdAt: testTime.Add(time.Hour)})
	if c.Version != 2 || c.Status != StatusCancelled || o.Version != 1 || o.CancelledAt != nil {
		t.Errorf("cancelled() = %+v from %+v", c, o)
	}
	if c.writeTime() <= o.writeTime() {
		t.Errorf("version 2 is written at %d, version 1 at %d", c.writeTime(), o.writeTime())
	}
	ce, err := c.event(EventCancelled, nil)
	if err != nil {
		t.Fatal(err)
	}
	if back, err = fromEvent(&ce); err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("fromEvent() = %+v, %v, want %+v", back, err, c)
	}
	ce.Sequence = 3
	if _, err := fromEvent(&ce); err == nil {
		t.Error("an event at another place than its order's version was taken")
	}
	ce.Payload = []byte("[")
	if _, err := fromEvent(&ce); err == nil {
		t.Error("a broken payload was taken")
	}
}

func TestOrderValues_WriteNoNull(t *testing.T) {
	t.Parallel()
	n := testNewOrder()
	n.CustomerID, n.Invoice = nil, ""
	o, err := n.build(identity{orderID: gocql.UUID{1}, eventID: gocql.UUID{2}, createdAt: testTime})
	if err != nil {
		t.Fatal(err)
	}
	args := orderValues(&o)
	if want := strings.Count(insertOrder, "?"); len(args) != want {
		t.Errorf("%d arguments for %d markers", len(args), want)
	}
	if n := strings.Count(orderColumns, ",") + 1; n != len(args)-1 {
		t.Errorf("%d columns for %d arguments and a timestamp", n, len(args))
	}
	for i, a := range args {
		if a == nil {
			t.Errorf("argument %d is null", i)
		}
	}
}
