package app

import (
	"path"
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/messages"
)

// No default opens a topic that the project itself does not use, and the topics of the
// relay are reserved whatever its configuration calls them.
func TestMessages_ReservedTopics(t *testing.T) {
	t.Parallel()
	for _, s := range Settings {
		if s.Key == "messages.topics" {
			for _, topic := range s.Value().([]string) {
				if topic == "" || path.Base(topic) != topic || slices.ContainsFunc([]rune(topic), func(r rune) bool { return r == '*' || r == '?' || r == '[' }) {
					t.Errorf("%s has the default %q, want names alone", s.Key, topic)
				}
			}
		}
	}
	if slices.Contains(messages.DefaultTopics(), OrderEvents[0]) {
		t.Error("messages may be sent to a topic of orders by default")
	}
	for name, tt := range map[string]struct {
		yaml     string
		reserved []string
		free     []string
	}{
		"defaults":  {"", []string{"OrderCreated", "OrderUpdated", "OrderCancelled", "outbox.shards"}, []string{"reminders", "billing.paid"}},
		"renamed":   {"relay:\n  topics: [OrderCreated=shop.created]\n  topic: shop.{event_type}\n", []string{"shop.created", "shop.OrderUpdated", "shop.anything"}, []string{"reminders", "OrderUpdated"}},
		"one topic": {"relay:\n  topic: events\n", []string{"events"}, []string{"reminders"}},
		"broken":    {"relay:\n  tables: [{table: a}, {table: a}]\n", []string{"OrderCreated", "x.shards"}, []string{"reminders"}},
	} {
		c, err := parseConfig(t, tt.yaml, nil)
		if err != nil {
			t.Fatal(err)
		}
		patterns := reservedTopics(c)
		matches := func(topic string) bool {
			return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, topic); return ok })
		}
		for _, topic := range tt.reserved {
			if !matches(topic) {
				t.Errorf("%s: %s is not reserved by %q", name, topic, patterns)
			}
		}
		for _, topic := range tt.free {
			if matches(topic) {
				t.Errorf("%s: %s is reserved by %q", name, topic, patterns)
			}
		}
	}
}
