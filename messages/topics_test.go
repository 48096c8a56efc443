package messages

import (
	"strings"
	"testing"
	"time"
)

// By default messages are taken for the topic of the examples alone. A pattern allows
// no topic of the relay, its exact name does.
func TestConfig_Topics(t *testing.T) {
	t.Parallel()
	reserved := []string{"OrderCreated", "*.shards", "billing.events.*"}
	for _, tt := range []struct {
		allowed []string
		topic   string
		want    bool
	}{
		{nil, "reminders", true},
		{nil, "OrderCreated", false},
		{nil, "anything", false},
		{[]string{"*"}, "anything", true},
		{[]string{"*"}, "OrderCreated", false},
		{[]string{"Order*"}, "OrderCreated", false},
		{[]string{"Order*"}, "OrderNotes", true},
		{[]string{"*"}, "outbox.shards", false},
		{[]string{"billing.*"}, "billing.events.paid", false},
		{[]string{"*", "OrderCreated"}, "OrderCreated", true},
		{[]string{"outbox.shards"}, "outbox.shards", true},
		{[]string{"*", "__consumer_offsets"}, "__consumer_offsets", false},
	} {
		cfg := Config{Topics: tt.allowed, Reserved: reserved}.withDefaults()
		n := NewMessage{Topic: tt.topic}
		if err := n.validate(&cfg, time.Now()); (err == nil) != tt.want || err != nil && !strings.Contains(err.Error(), "topic") {
			t.Errorf("topics %q: a message for %s = %v, want accepted %t", tt.allowed, tt.topic, err, tt.want)
		}
	}
	if err := (Config{Reserved: []string{"["}}).withDefaults().validate(); err == nil {
		t.Error("an invalid reserved pattern was accepted")
	}
}
