package topics

import (
	"strings"
	"sync"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// Expand returns the topic of an event by a template: {event_type} and {aggregate_type},
// with or without a preceding $, are replaced by the values of the event.
func Expand(template, eventType, aggregateType string) string {
	return strings.NewReplacer("${event_type}", eventType, "${aggregate_type}", aggregateType,
		"{event_type}", eventType, "{aggregate_type}", aggregateType).Replace(template)
}

// Names are the topics of events, by event type or by a template. It is safe for
// concurrent use.
type Names struct {
	topics   map[string]string // by event type
	template string

	mu struct {
		sync.RWMutex
		cache map[nameKey]nameEntry
	}
}

// maxNames bounds the cached names; event types are few.
const maxNames = 1000

type nameKey struct{ event, aggregate, topic string }

type nameEntry struct {
	name string
	err  error
}

// NewNames returns the names of topics; the template names the topic of an event type that
// topics does not contain.
func NewNames(topics map[string]string, template string) *Names {
	n := &Names{topics: topics, template: template}
	n.mu.cache = make(map[nameKey]nameEntry)
	return n
}

// Of returns the topic of an event. The error is a *failure.TopicError if the name is not
// valid.
func (n *Names) Of(e *outbox.Event) (string, error) {
	k := nameKey{e.Type, e.AggregateType, e.Headers[outbox.HeaderTopic]}
	n.mu.RLock()
	t, ok := n.mu.cache[k]
	n.mu.RUnlock()
	if ok {
		return t.name, t.err
	}
	t.name, t.err = n.find(e)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.mu.cache) >= maxNames {
		clear(n.mu.cache)
	}
	n.mu.cache[k] = t
	return t.name, t.err
}

// find returns the topic of an event: a message contains its topic; the topic of any other
// event is that of its row, or in n.topics, or else follows from the template.
func (n *Names) find(e *outbox.Event) (string, error) {
	if e.AggregateType == outbox.MessageAggregate {
		if !dlq.ValidTopic(e.Type) {
			return e.Type, &failure.TopicError{EventType: e.Type, AggregateType: e.AggregateType, Topic: e.Type}
		}
		return e.Type, nil
	}
	t := e.Headers[outbox.HeaderTopic]
	ofRow := t != ""
	if !ofRow {
		if t, ok := n.topics[e.Type]; ok {
			return t, nil
		}
		t = Expand(n.template, e.Type, e.AggregateType)
	}
	if !dlq.ValidTopic(t) {
		return t, &failure.TopicError{EventType: e.Type, AggregateType: e.AggregateType, Topic: t, OfRow: ofRow}
	}
	return t, nil
}
