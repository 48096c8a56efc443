package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

func testEvent() kafkarecord.Event {
	return kafkarecord.Event{
		Topic: "OrderCreated", Partition: 3, Offset: 41, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Key: "order-1", ID: "e-1", Type: "OrderCreated",
		AggregateID: "order-1", AggregateType: "order", Sequence: 7, Time: "2026-01-02T03:04:04.5Z", ContentType: "application/json",
		Headers: map[string]string{"region": "eu"},
		Data:    json.RawMessage(`{"total":"1250.00","lines":[{"sku":"a","quantity":2},{"sku":"b","quantity":1000000}],"customer":null,"n":3}`),
	}
}

func TestDestinations_BadOnesAreNamed(t *testing.T) {
	t.Parallel()
	d := Destinations{
		Plugins: map[string]Plugin{"p": Func(func(context.Context, Event) error { return nil })},
		Targets: map[string]notify.Target{"ops": notify.TargetFunc(func(context.Context, notify.Message) error { return nil })},
	}
	for want, p := range map[string]subscriptions.Push{
		`push.to "x": this process has no such target or plugin; use one of ops, p`: {To: "x"},
		"push: title and text are not allowed for the plugin p":                     {To: "p", Text: "x"},
		"push.title: line 1, column 3: undeclared reference to 'event_typ'":         {To: "ops", Title: "{{event_typ}}"},
		"push.text: line 2, column 3: ":                                             {To: "ops", Text: "a\n{{if}}"},
		"push.title: line 1, column 1: {{ without }}: between {{ and }} write CEL, such as {{data.total}} or {{json(data)}}\npush.text: line 1, column 4: undeclared": {To: "ops", Title: "{{", Text: "{{.rule}}"},
	} {
		if _, err := d.Plugin(&p); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
	d.Targets["p"] = d.Targets["ops"]
	if err := d.Validate(); err == nil || !strings.Contains(err.Error(), "plugin p: a target has that name too") {
		t.Errorf("two of one name: %v", err)
	}
}

// The receivers of rules of former versions know these ids.
func TestNewEvent_TheDeliveryIDIsStable(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]kafkarecord.Event{
		"f82ceb19-35c2-5e93-bc71-e09188470573": {ID: "e-1"}, "ee41bd05-7ad2-5d3c-a225-ed06fc8fae8d": {ID: "e-1", Source: "/shop"}, "2b157a82-069e-526c-b6a8-8324ca914465": {ID: "1b4e28ba-2fa1-11d2-883f-0016d3cca427", Source: "/shop"},
		"415a8158-1b15-5759-a22c-36f84aec87db": {Topic: "a", Partition: 3, Offset: 41},
	} {
		if got := NewEvent("big", e, 1).DeliveryID; got != want {
			t.Errorf("NewEvent(%+v) has the delivery id %s, want %s", e, got, want)
		}
	}
}

// Data whose white space and characters JSON encoders change has its bytes beside it.
func TestTarget_ReceivesTheBytes(t *testing.T) {
	t.Parallel()
	target := new(messages)
	d := Destinations{Targets: map[string]notify.Target{"ops": target}}
	plugin, err := d.Plugin(&subscriptions.Push{To: "ops"})
	if err != nil {
		t.Fatal(err)
	}
	e := testEvent()
	for data, want := range map[string]string{`{"a":1}`: ``, "{\r\n\"a\": 1}": "{\r\n\"a\": 1}", `"<"`: `"<"`} {
		e.Data = json.RawMessage(data)
		if err := plugin.Process(t.Context(), NewEvent("big", e, 1)); err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(target.got[len(target.got)-1])
		var got struct{ Data kafkarecord.Event }
		if err = errors.Join(err, json.Unmarshal(body, &got)); err != nil || string(got.Data.Base64) != want || string(got.Data.Payload()) != data {
			t.Errorf("%s: %s, %v", data, body, err)
		}
	}
}

// messages is a target that records its messages.
type messages struct{ got []notify.Message }

func (m *messages) Send(_ context.Context, n notify.Message) error {
	m.got = append(m.got, n)
	return nil
}

func TestTarget_ReceivesTheRenderedMessage(t *testing.T) {
	t.Parallel()
	target := new(messages)
	d := Destinations{Targets: map[string]notify.Target{"ops": target}}
	send := func(p subscriptions.Push, e kafkarecord.Event) (notify.Message, error) {
		t.Helper()
		p.To = "ops"
		s := subscriptions.Subscription{Push: &p}.WithDefaults()
		plugin, err := d.Plugin(s.Push)
		if err != nil {
			t.Fatal(err)
		}
		if err := plugin.Process(t.Context(), Event{Event: e, Subscription: "big", DeliveryID: "d-1"}); err != nil {
			return notify.Message{}, err
		}
		return target.got[len(target.got)-1], nil
	}
	e := testEvent()
	m, err := send(subscriptions.Push{}, e)
	const words = `OrderCreated[3]@41, sequence 7, event e-1, 2026-01-02T03:04:04.5Z
{
  "customer": null,
  "lines": [
    {
      "quantity": 2,
      "sku": "a"
    },
    {
      "quantity": 1000000,
      "sku": "b"
    }
  ],
  "n": 3,
  "total": "1250.00"
}`
	if err != nil || m.Title != "OrderCreated order order-1" || m.Text != words ||
		m.ID != "d-1" || m.Severity != notify.Info || m.Type != "event.big" {
		t.Errorf("by default: %+v, %v", m, err)
	}
	b, err := json.Marshal(m)
	if err != nil || !strings.Contains(string(b), `"event_id":"e-1"`) || !strings.Contains(string(b), `"total":"1250.00"`) {
		t.Errorf("as a webhook: %s, %v", b, err)
	}
	m, err = send(subscriptions.Push{
		Title: "Order {{aggregate_id}}:\n{{.data.total}}", Severity: "critical",
		Text: `{{data.lines.map(l, json(l.quantity) + " of " + l.sku + " for " + key).join("\n")}} {{data.nothing}} {{"\x1b[2J"}}{{subscription}}`,
	}, e)
	if err != nil || m.Title != "Order order-1: 1250.00" || m.Text != "2 of a for order-1\n1000000 of b for order-1 <no such key: nothing>  [2Jbig" || m.Severity != notify.Critical {
		t.Errorf("with texts: %+v, %v", m, err)
	}
	text := "just text"
	e.Data, e.Text = nil, &text
	if m, err = send(subscriptions.Push{}, e); err != nil || !strings.HasSuffix(m.Text, "\njust text") {
		t.Errorf("of a text: %+v, %v", m, err)
	}
	long := strings.Repeat("ü", filter.MaxText)
	e.Text = &long
	if m, err = send(subscriptions.Push{Title: "{{data_text}}"}, e); err != nil || len(m.Text) > filter.MaxText+3 || len([]rune(m.Title)) != maxTitle+1 || !strings.HasSuffix(m.Text, "ü…") {
		t.Errorf("of a long text: %d, %d, %v", len(m.Text), len(m.Title), err)
	}
}
