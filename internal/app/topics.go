package app

import (
	"cmp"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// OrderEvents are the event types of the order service, and so the topics of a
// relay that names its topics by event type.
var OrderEvents = orders.EventTypes

// Publication describes where the relay of the configuration publishes the events of
// orders, without brokers.
func (c *Config) Publication() (orders.Publication, error) {
	confs, err := c.RelayConfigs()
	if err != nil {
		return orders.Publication{}, err
	}
	conf := confs[0] // without the table of orders among them: a relay elsewhere, with the same settings
	if i := slices.IndexFunc(confs, func(r relay.Config) bool { return TableName(&r) == c.Scylla.Keyspace+"."+outbox.DefaultTableName }); i >= 0 {
		conf = confs[i]
	}
	conf.TopicTemplate = TopicTemplate(&conf)
	p := orders.Publication{Topics: make(map[string]string), Source: conf.Source, TLS: c.Kafka.TLS, SASL: c.Kafka.SASL}
	topic := NewTopics(conf)
	for _, eventType := range orders.EventTypes {
		if p.Topics[eventType], err = topic(&outbox.Event{Type: eventType, AggregateType: orders.AggregateType}); err != nil {
			return orders.Publication{}, cli.Usage(err)
		}
	}
	return p, nil
}

// TopicTemplate returns the topic template of events without a topic in conf.Topics.
func TopicTemplate(conf *relay.Config) string {
	fallback := relay.Defaults().TopicTemplate
	if conf.Mapping.Preset == outbox.PresetDebezium {
		fallback = relay.DebeziumTopicTemplate
	}
	return cmp.Or(conf.TopicTemplate, fallback)
}
