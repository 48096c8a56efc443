package stream

import (
	"context"
	"path"
	"slices"
	"strings"
)

// DefaultTopics returns the default of Topics.Patterns: the topics of orders, and that of
// the examples of messages.
func DefaultTopics() []string {
	return []string{"OrderCreated", "OrderUpdated", "OrderCancelled", "reminders"}
}

// Topics are the topics that clients may read: no topic that begins with _.
type Topics struct {
	// Patterns are names, with * for any characters.
	Patterns []string
	// Published returns more names: the topics of a relay, which no pattern describes,
	// because they follow from event types. Nil returns none.
	Published func(context.Context) []string
}

// OrDefault returns t, with DefaultTopics if it has neither patterns nor Published.
func (t Topics) OrDefault() Topics {
	if len(t.Patterns) == 0 && t.Published == nil {
		t.Patterns = DefaultTopics()
	}
	return t
}

// FilterAllowed returns the given topics that clients may read, in their order.
func (t Topics) FilterAllowed(ctx context.Context, topics []string) []string {
	var published []string
	if t.Published != nil && slices.ContainsFunc(topics, func(topic string) bool { return !t.matches(topic) }) {
		published = t.Published(ctx)
	}
	return slices.DeleteFunc(slices.Clone(topics), func(topic string) bool {
		return strings.HasPrefix(topic, "_") || !t.matches(topic) && !slices.Contains(published, topic)
	})
}

// matches reports whether a pattern matches the topic.
func (t Topics) matches(topic string) bool {
	return slices.ContainsFunc(t.Patterns, func(p string) bool { ok, _ := path.Match(p, topic); return ok })
}
