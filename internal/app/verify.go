package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// NewTopics returns a function that computes the topic of an event from the relay's
// configuration. It shares no code with the relay, so that verification detects an event in
// a wrong topic.
func NewTopics(conf relay.Config) func(e *outbox.Event) (string, error) {
	return func(e *outbox.Event) (string, error) {
		eventType, aggregateType, own := e.Type, e.AggregateType, e.Headers[outbox.HeaderTopic]
		if t, ok := conf.Topics[eventType]; ok && own == "" && aggregateType != outbox.MessageAggregate {
			return t, nil
		}
		t := eventType // the event type of a message is its topic
		switch {
		case aggregateType == outbox.MessageAggregate:
		case own != "":
			t = own
		default:
			t = strings.NewReplacer("${event_type}", eventType, "${aggregate_type}", aggregateType, "{event_type}", eventType, "{aggregate_type}", aggregateType).Replace(conf.TopicTemplate)
		}
		if t == "." || t == ".." || !topicName.MatchString(t) {
			return "", fmt.Errorf("event type %q names no topic: %q", eventType, t)
		}
		return t, nil
	}
}

// Verification returns a verification of the table of a relay, which reads the topics of its
// configuration and the topics that the relay has published to, and knows the epochs of the
// table. The caller sets its window, and dead letters, limits and state if it has some.
func (c *Config) Verification(ctx context.Context, conf *relay.Config, session *gocql.Session) (*verify.Verification, error) {
	table := TableName(conf)
	topics, err := (&published{session: session, keyspace: c.Scylla.Keyspace, relay: conf.Name, tables: []string{table}}).read(ctx)
	if err != nil {
		return nil, err
	}
	begun, err := epochs.Read(ctx, session, c.Scylla.Keyspace, table)
	if err != nil {
		return nil, err
	}
	return &verify.Verification{
		Scan:     &verify.Scan{Session: session, Table: table, Topic: NewTopics(*conf)},
		Keyspace: conf.TableKeyspace, Table: conf.Table, Mapping: conf.Mapping, Kafka: c.Kafka, Source: cmp.Or(conf.Source, relay.Defaults().Source),
		Topics: slices.AppendSeq(topics, maps.Values(conf.Topics)), Window: verify.Window{Epochs: begun},
	}, nil
}

// topicName matches the topic names that Kafka accepts, and . and ..
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// VerifyMargin is the time that a relay may need beyond its confidence window.
const VerifyMargin = 30 * time.Second

// RepairAtOnce is the maximum number of events in one request for repair.
const RepairAtOnce = 500
