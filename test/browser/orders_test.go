//go:build browser

package browser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
)

// order stores an order of a customer, as the order API does.
func (w *world) order(customer string, change func(*orders.NewOrder)) orders.Order {
	w.t.Helper()
	var n orders.NewOrder
	if err := json.Unmarshal([]byte(`{"invoice":"536365","country":"Finland","currency":"EUR","lines":[
		{"sku":"71053","description":"WHITE METAL LANTERN","quantity":2,"unit_price":"3.39"},{"sku":"85123A","description":"HEART T-LIGHT HOLDER","quantity":6,"unit_price":"2.55"}]}`), &n); err != nil {
		w.t.Fatal(err)
	}
	n.CustomerID = &customer
	if change != nil {
		change(&n)
	}
	r, err := w.orders.Create(w.t.Context(), n, orders.WriteOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Order
}

// later hands a message in for a time.
func (w *world) later(topic, key string, in time.Duration) gocql.UUID {
	w.t.Helper()
	at := time.Now().Add(in)
	a, err := w.messages.Accept(w.t.Context(), messages.NewMessage{
		Topic: topic, Key: key, Payload: []byte(`{"text":"hello"}`), Headers: map[string]string{"x-tenant": "acme"}, DeliverAt: &at,
	}, messages.Options{Client: "test"})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.ID
}

// shop makes orders of every status and messages that wait, and returns one of each.
func (w *world) shop() (order, message string) {
	w.t.Helper()
	for i := range 12 {
		o := w.order("17850", func(n *orders.NewOrder) {
			at := time.Now().Add(-time.Duration(i*i) * time.Hour)
			n.PlacedAt, n.Invoice = &at, fmt.Sprint(536365+i)
		})
		for step := range i % 4 {
			var err error
			switch step {
			case 0:
				_, err = w.orders.Confirm(w.t.Context(), o.ID, orders.Confirmation{}, orders.WriteOptions{})
			case 1:
				_, err = w.orders.Ship(w.t.Context(), o.ID, orders.Shipment{Carrier: "Posti", Tracking: "JJFI1"}, orders.WriteOptions{})
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
	o := w.order("17850", func(n *orders.NewOrder) {
		n.Address = &orders.Address{Name: "A. Virtanen", Street: "Mannerheimintie 1", City: "Helsinki", Postcode: "00100"}
	})
	if _, err := w.orders.Confirm(w.t.Context(), o.ID, orders.Confirmation{}, orders.WriteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	for i := range 6 {
		message = w.later("billing.reminders", fmt.Sprintf("customer-%d", 40+i), time.Duration(i+1)*47*time.Minute).String()
	}
	w.later("newsletter", "", 26*24*time.Hour)
	return o.ID.String(), message
}

// An operator finds the order of a customer, previews its confirmation,
// confirms it, and sees its event in the topic.
func TestOrder_FindConfirmWatch(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	o := w.order("17850", nil)
	w.order("somebody else", nil)
	b := w.open(access.Operator, "/orders")
	b.sees("main", "Enter a customer id")
	b.fills("[data-key=f-customer]", "17850")
	b.types("\r")
	b.sees("main", "1 order, newest first")
	b.sees("tbody", "22.08 EUR")
	b.at("/orders?customer=17850")
	b.click("tbody a")
	b.sees("main h1", "Order of 22.08 EUR")
	b.sees(".detail-head .badge", "placed")
	b.sees("main", "WHITE METAL LANTERN")
	b.sees(".timeline.events", "OrderCreated")
	if n := b.count("[data-key=act-ship]"); n != 0 {
		t.Error("an unconfirmed order can be shipped")
	}
	b.click("[data-key=act-confirm]")
	b.sees("dialog .preview", "one OrderUpdated")
	b.sees("dialog .preview", "1 → 2")
	if eval[bool](b, `!document.querySelector("dialog [data-key=yes]").disabled`) {
		t.Error("it can be confirmed without a reason")
	}
	b.confirm("INC-400 asked by phone, größer")
	b.sees(".detail-head .badge", "confirmed")
	b.sees(".timeline.events", "version 2, confirmed")
	b.sees(`[aria-label="History of the event"]`, "OrderUpdated[") // its place in the topic
	got, err := w.orders.Get(t.Context(), o.ID)
	if err != nil || got.Status != orders.StatusConfirmed || got.Version != 2 {
		t.Fatalf("the order is %s at version %d, %v", got.Status, got.Version, err)
	}
	b.click(`[data-key="e-` + got.EventID.String() + `"]`)
	b.sees("main h1", "Event")
	b.sees("main .timeline", "OrderUpdated[")
	b.visit("/audit")
	b.sees("tbody", "INC-400 asked by phone, größer")
	b.sees("tbody", "confirm order")
	b.click("tbody a")
	b.sees("main h1", "Order of 22.08 EUR")
}

// Another user was first: nothing is overwritten, and the dialog shows the
// reason and a link to the current state.
func TestOrder_RefusedWithItsReason(t *testing.T) {
	t.Parallel()
	w := start(t)
	o := w.order("17850", nil)
	b := w.open(access.Operator, "/orders/"+o.ID.String())
	b.click("[data-key=act-confirm]")
	b.sees("dialog .preview", "1 → 2")
	if _, err := w.orders.Cancel(t.Context(), o.ID, orders.Cancellation{Reason: "changed my mind"}, orders.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.fills("dialog [data-key=reason]", "INC-401")
	b.click("dialog [data-key=yes]")
	b.sees("dialog [role=alert]", "The order is at version 2, which If-Match does not contain")
	b.click("dialog [data-key=look]")
	b.sees("dialog", "The order is already cancelled.")
	if !eval[bool](b, `document.querySelector("dialog [data-key=yes]").disabled`) {
		t.Error("a refused change can be requested again")
	}
	b.types("\x1b")
	b.gone("dialog")
	b.sees(".detail-head .badge", "cancelled")
	b.sees("main", "changed my mind")
	b.sees(".actions", "Its state is final")
	b.visit("/audit")
	b.sees("tbody", "refused")
}

// An order is shipped with its tracking number, and cancelling it asks for the
// fields of the event.
func TestOrder_ShipAndCancel(t *testing.T) {
	t.Parallel()
	w := start(t)
	o, other := w.order("17850", nil), w.order("17850", nil)
	if _, err := w.orders.Confirm(t.Context(), o.ID, orders.Confirmation{}, orders.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	b := w.open(access.Operator, "/orders/"+o.ID.String())
	b.click("[data-key=act-ship]")
	b.sees("dialog", "cannot be undone")
	b.fills("[data-key=x-tracking]", "JJFI42")
	b.confirm("handed to the carrier")
	b.sees(".detail-head .badge", "shipped")
	b.sees(".facts", "JJFI42")
	b.visit("/orders/" + other.ID.String())
	b.click("[data-key=act-cancel]")
	b.sees("dialog .preview", "one OrderCancelled")
	b.fills("[data-key=x-reason]", "out of stock")
	b.confirm("INC-402")
	b.sees(".detail-head .badge", "cancelled")
	b.sees(".facts", "out of stock")
}

// A message that waits is found by its topic and key, and taken back.
func TestScheduled_FindAndCancel(t *testing.T) {
	t.Parallel()
	w := start(t)
	for i := range 3 {
		w.later("billing.reminders", fmt.Sprintf("customer-%d", i), time.Hour)
	}
	id := w.later("billing.reminders", "customer-42", 30*time.Minute)
	w.later("newsletter", "customer-42", 2*time.Hour)
	b := w.open(access.Operator, "/scheduled")
	b.sees("main", "5 messages, next due first")
	b.fills("[data-key=f-key]", "customer-42")
	b.types("\r")
	b.sees("main", "2 messages, next due")
	b.fills("[data-key=f-topic]", "billing.reminders")
	b.types("\r")
	b.sees("main", "1 message, next due")
	b.click("tbody a")
	b.sees("main h1", "billing.reminders")
	b.sees(".detail-head .badge", "scheduled")
	b.click("[data-key=act-take-back]")
	b.sees("dialog", "It is never published")
	b.confirm("INC-403 paid")
	b.sees(".detail-head .badge", "cancelled")
	b.sees(".timeline", "cancelled")
	v, err := w.messages.Get(t.Context(), id)
	if err != nil || v.State != messages.Cancelled {
		t.Errorf("the message is %s, %v", v.State, err)
	}
	if n := b.count("[data-key=act-take-back]"); n != 0 {
		t.Error("a cancelled message can be cancelled again")
	}
	b.visit("/scheduled")
	b.sees("main", "4 messages, next due")
	b.visit("/audit")
	b.sees("tbody", "INC-403 paid")
	b.click("tbody a")
	b.sees("main h1", "billing.reminders")
}

// The content of a message is shown before an early delivery; then it is
// published, and the audit trail contains the operator and the reason.
func TestScheduled_SeeAndDeliverNow(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	id := w.later("billing.reminders", "customer-42", 30*24*time.Hour)
	b := w.open(access.Operator, "/scheduled/"+id.String())
	b.sees(`[aria-label="Payload"]`, `"text": "hello"`)
	b.sees(`[aria-label="Payload"] header`, "application/json · 16 bytes")
	b.sees(`[aria-label="Headers"]`, "x-tenant")
	b.click("[data-key=act-deliver-message-now]")
	b.sees("dialog", "It is published immediately instead of at its time")
	b.sees("dialog .facts", "customer-42")
	if eval[bool](b, `!document.querySelector("dialog [data-key=yes]").disabled`) {
		t.Error("it can be made due without a reason")
	}
	b.confirm("INC-404 the customer asked for it")
	b.sees(".timeline", "made due by hand")
	b.gone("[data-key=act-deliver-message-now]")
	w.scheduler()
	b.sees(".detail-head .badge", "queued")
	b.sees(`[aria-label="Payload"]`, `"text": "hello"`)
	if n := b.count("[data-key^=act-]"); n != 0 {
		t.Error("a published message can be changed")
	}
	b.visit("/audit")
	b.sees("tbody", "INC-404 the customer asked for it")
	b.sees("tbody", "deliver message now")
	b.click("tbody a")
	b.sees("main h1", "billing.reminders")
	b.click("[data-key=life]")
	b.sees("main .timeline", "billing.reminders[") // its place in the topic
}

// All messages that match a filter are counted, made due and cancelled, on
// every page; the others keep waiting.
func TestScheduled_Many(t *testing.T) {
	t.Parallel()
	w := start(t)
	for i := range 60 { // more than a page
		w.later("billing.reminders", fmt.Sprintf("customer-%d", i), time.Hour)
	}
	w.later("newsletter", "customer-1", 2*time.Hour)
	b := w.open(access.Operator, "/scheduled")
	b.sees("main", "50 messages, next due first")
	if n := b.count("[data-key=act-deliver-many-now]"); n != 0 {
		t.Error("everything that waits can be made due by one button")
	}
	b.fills("[data-key=f-topic]", "billing.reminders")
	b.types("\r")
	b.click("[data-key=act-deliver-many-now]")
	b.sees("dialog", "60 messages. They are published immediately, at the rate of the relay")
	b.sees("dialog .preview", "billing.reminders")
	b.fills("dialog [data-key=rate]", "0.05")
	if eval[bool](b, `document.querySelector("dialog [data-key=rate]").checkValidity()`) {
		t.Error("the dialog accepts a rate below the minimum of the API")
	}
	b.fills("dialog [data-key=rate]", "0.5")
	if !eval[bool](b, `document.querySelector("dialog [data-key=rate]").checkValidity()`) {
		t.Error("the dialog rejects rates below one per second, and the API accepts them")
	}
	b.fills("dialog [data-key=rate]", "500")
	b.confirm("INC-500 wrong delay")
	b.sees("body", "60 messages made due.")
	b.sees("tbody", "overdue")
	b.click("[data-key=act-deliver-many-now]")
	b.sees("dialog", "No scheduled message that is not due yet matches.")
	b.click("dialog footer button:not([type=submit])")
	b.click("[data-key=act-cancel-many]")
	b.sees("dialog", "60 messages. They are never published.")
	b.confirm("INC-500 not at all")
	b.sees("body", "60 messages cancelled.")
	b.visit("/scheduled")
	b.sees("main", "1 message, next due")
	b.visit("/audit")
	b.sees("tbody", "INC-500 wrong delay")
	b.sees("tbody", "deliver messages now")
	b.sees("tbody", "cancel messages")
	for what, rows := range map[string]int{"messages": 2, "dead-letters": 0, "message": 0} {
		b.visit("/audit?actor=mara-operator&what=" + what)
		b.sees("main", map[bool]string{true: "newest first", false: "No change matches."}[rows > 0])
		if n := b.count("main tbody tr"); n != rows {
			t.Errorf("the audit of %s has %d changes, want %d", what, n, rows)
		}
	}
	b.click("[data-key=clear]")
	b.sees("tbody", "deliver messages now")
	b.at("/audit")
	viewer := w.open(access.Viewer, "/scheduled?topic=newsletter")
	viewer.sees("main", "1 message, next due")
	if n := viewer.count("[data-key$=-many]"); n != 0 {
		t.Error("a viewer sees an action that the API refuses")
	}
}

// Another user cancelled the message: the dialog shows this.
func TestScheduled_DeliverNowRefused(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.later("billing.reminders", "k", time.Hour)
	b := w.open(access.Operator, "/scheduled/"+id.String())
	b.click("[data-key=act-deliver-message-now]")
	b.sees("dialog", "It is published immediately")
	if err := w.messages.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.fills("dialog [data-key=reason]", "INC-405")
	b.click("dialog [data-key=yes]")
	b.sees("dialog [role=alert]", "is cancelled and cannot be delivered now")
	b.click("dialog [data-key=look]")
	b.sees("dialog", "It is too late")
	b.types("\x1b")
	b.gone("dialog")
	b.sees(`[aria-label="Payload"]`, "removed when the message was cancelled")
}

// A large payload and a long header are truncated, and shown in full on
// request; binary payloads are shown as bytes.
func TestScheduled_LargeIsCut(t *testing.T) {
	t.Parallel()
	w := start(t)
	items := make([]string, 3000)
	for i := range items {
		items[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	large, one := "["+strings.Join(items, ",")+"]", `"`+strings.Repeat("x", 30_000)+`"`
	at := time.Now().Add(time.Hour)
	accept := func(n messages.NewMessage) string {
		n.Topic, n.DeliverAt = "billing.reminders", &at
		a, err := w.messages.Accept(t.Context(), n, messages.Options{Client: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return a.ID.String()
	}
	b := w.open(access.Viewer, "/scheduled/"+accept(messages.NewMessage{Payload: []byte(large), Headers: map[string]string{"x-long": strings.Repeat("h", 5000) + "END"}}))
	shown := func() int { return len(b.text("pre.payload")) }
	b.sees("pre.payload", `"n": 7`)
	if n := shown(); n > 25_000 {
		t.Errorf("%d characters of a large payload are shown at once", n)
	}
	if strings.Contains(b.text(`[aria-label="Headers"]`), "END") {
		t.Error("a long header is shown whole")
	}
	b.click("[data-key=whole]")
	b.sees("pre.payload", `"n": 2999`)
	b.click("[data-key=all-x-long]")
	b.sees(`[aria-label="Headers"]`, "END")
	b.visit("/scheduled/" + accept(messages.NewMessage{Payload: []byte(one)}))
	b.sees("pre.payload", "xxx")
	if n := shown(); n != 20_000 {
		t.Errorf("%d characters of one long line are shown at once", n)
	}
	b.click("[data-key=whole]")
	b.sees("pre.payload", `x"`)
	raw := []byte{0xff, 0, 0xfe}
	b.visit("/scheduled/" + accept(messages.NewMessage{PayloadBase64: &raw}))
	b.sees("pre.payload", "ff 00 fe")
	b.visit("/scheduled/" + accept(messages.NewMessage{}))
	b.sees(`[aria-label="Payload"]`, "Its payload is empty")
}

// A viewer sees orders and messages without actions, and the API refuses
// changes.
func TestRoles_OrdersAndMessages(t *testing.T) {
	t.Parallel()
	w := start(t)
	o, m := w.order("17850", nil), w.later("billing.reminders", "k", time.Hour)
	b := w.open(access.Viewer, "/orders?customer=17850")
	b.sees("main", "1 order, newest first")
	b.visit("/orders/" + o.ID.String())
	b.sees(".actions", "Your role is read-only")
	b.visit("/scheduled/" + m.String())
	b.sees(".actions", "Your role is read-only")
	if n := b.count("[data-key^=act-]"); n > 0 {
		t.Errorf("a viewer is offered %d changes", n)
	}
	for _, change := range [][2]string{{"POST", "/v1/orders/" + o.ID.String() + "/cancel"}, {"DELETE", "/v1/messages/" + m.String()}, {"POST", "/v1/messages/" + m.String() + "/deliver-now"}} {
		if got := eval[int](b, `fetch(%s, {method: %s, headers: {Authorization: "Bearer " + sessionStorage.getItem("outbox.token")}}).then((r) => r.status)`, change[1], change[0]); got != 403 {
			t.Errorf("%s %s by a viewer = %d, want 403", change[0], change[1], got)
		}
	}
	if got, err := w.orders.Get(t.Context(), o.ID); err != nil || got.Version != 1 {
		t.Errorf("the order is at version %d, %v", got.Version, err)
	}
}

// Text of customers is displayed, not executed: names, addresses, lines, keys.
func TestSafety_OrdersDoNotRun(t *testing.T) {
	t.Parallel()
	w := start(t)
	short := hostile[:64]
	o := w.order(short, func(n *orders.NewOrder) {
		n.Invoice, n.Country = short, hostile[:100]
		n.Lines[0].SKU, n.Lines[0].Description = short, hostile
		n.Address = &orders.Address{Name: hostile[:100], Street: hostile[:100], City: hostile[:100]}
	})
	if _, err := w.orders.Cancel(t.Context(), o.ID, orders.Cancellation{Reason: hostile, CreditNote: short}, orders.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	at, text := time.Now().Add(time.Hour), hostile
	m, err := w.messages.Accept(t.Context(), messages.NewMessage{
		Topic: "billing.reminders", Key: hostile, PayloadText: &text, ContentType: "text/html", Headers: map[string]string{"x-note": hostile}, DeliverAt: &at,
	}, messages.Options{Client: "test"})
	if err != nil {
		t.Fatal(err)
	}
	b := w.open(access.Operator, "/orders/"+o.ID.String())
	for _, at := range []string{"tbody", ".facts", "[data-key=customer]"} {
		b.sees(at, "onerror=")
	}
	b.checkUnharmed("order")
	b.click("[data-key=customer]")
	b.sees("tbody", "onerror=")
	b.checkUnharmed("orders")
	b.visit("/scheduled")
	b.sees("tbody", "onerror=")
	b.checkUnharmed("scheduled")
	b.visit("/scheduled/" + m.ID.String())
	b.sees("pre.payload", "onerror=")
	b.sees(`[aria-label="Headers"]`, "onerror=")
	b.checkUnharmed("payload")
	b.click("[data-key=act-deliver-message-now]")
	b.sees("dialog", "onerror=")
	b.types("\x1b")
	b.gone("dialog")
	b.click("[data-key=act-take-back]")
	b.sees("dialog", "onerror=")
	b.confirm(hostile)
	b.checkUnharmed("message")
	b.visit("/audit")
	b.sees("tbody", strings.TrimSpace(hostile))
	b.checkUnharmed("audit")
}
