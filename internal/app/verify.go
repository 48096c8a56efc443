package app

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// TopicsOf names topics by the relay's configuration, on its own: that the
// relay takes an event elsewhere is one of the things to be found.
func TopicsOf(conf relay.Config) func(eventType, aggregateType string) (string, error) {
	return func(eventType, aggregateType string) (string, error) {
		if t, ok := conf.Topics[eventType]; ok && aggregateType != outbox.MessageAggregate {
			return t, nil
		}
		t := eventType // a message names its topic itself
		if aggregateType != outbox.MessageAggregate {
			t = strings.NewReplacer("${event_type}", eventType, "${aggregate_type}", aggregateType, "{event_type}", eventType, "{aggregate_type}", aggregateType).Replace(conf.TopicTemplate)
		}
		if t == "." || t == ".." || !topicName.MatchString(t) {
			return "", fmt.Errorf("event type %q names no topic: %q", eventType, t)
		}
		return t, nil
	}
}

// topicName is what Kafka takes for a topic's name, but for . and ..
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// VerifyMargin is the time that a relay may need beyond its confidence window.
const VerifyMargin = 30 * time.Second

// RepairAtOnce is how many events a relay is asked for at a time.
const RepairAtOnce = 500
