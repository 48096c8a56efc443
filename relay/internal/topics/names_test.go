package topics

import (
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

func TestNames_Of(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		template string
		topics   map[string]string
		want     string
		bad      bool
	}{
		{"{event_type}", nil, "OrderCreated", false},
		{"{aggregate_type}.events", nil, "order.events", false},
		{"prod-{aggregate_type}-{event_type}", nil, "prod-order-OrderCreated", false},
		{"{event_type}", map[string]string{"OrderCreated": "orders.created"}, "orders.created", false},
		{"{event_type}", map[string]string{"OrderUpdated": "orders.updated"}, "OrderCreated", false},
		{"{event_type}/x", nil, "", true},
	} {
		e := outbox.Event{Type: "OrderCreated", AggregateType: "order"}
		got, err := NewNames(tt.topics, tt.template).Of(&e)
		if (err != nil) != tt.bad || !tt.bad && got != tt.want {
			t.Errorf("Of() by %q = %q, %v, want %q", tt.template, got, err, tt.want)
		}
		message := outbox.Event{Type: "billing.events", AggregateType: outbox.MessageAggregate}
		if got, err := NewNames(map[string]string{message.Type: "elsewhere"}, tt.template).Of(&message); err != nil || got != message.Type {
			t.Errorf("Of() a message, by %q = %q, %v, want the topic in the message", tt.template, got, err)
		}
	}
}

// An invalid topic of a row is no matter of its types, so the error names the row.
func TestNames_InvalidTopicOfARow(t *testing.T) {
	t.Parallel()
	e := outbox.Event{Type: "OrderCreated", AggregateType: "order", Headers: map[string]string{outbox.HeaderTopic: "a b"}}
	if _, err := NewNames(nil, "{event_type}").Of(&e); err == nil || !strings.Contains(err.Error(), "the row of the event names it") || strings.Contains(err.Error(), "OrderCreated") {
		t.Errorf("Of() an event whose row names an invalid topic: %v", err)
	}
}
