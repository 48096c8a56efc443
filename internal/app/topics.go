package app

import (
	"cmp"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// OrderEvents are the event types of the order service, and so the topics of a
// relay that names its topics by event type.
var OrderEvents = []string{"OrderCreated", "OrderUpdated", "OrderCancelled"}

// TopicTemplate returns the topic template of events without a topic in conf.Topics.
func TopicTemplate(conf *relay.Config) string {
	fallback := relay.DefaultTopicTemplate
	if conf.Mapping.Preset == outbox.PresetDebezium {
		fallback = relay.DebeziumTopicTemplate
	}
	return cmp.Or(conf.TopicTemplate, fallback)
}
