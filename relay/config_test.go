package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

func valid() Config {
	return Config{Session: new(gocql.Session), Brokers: []string{"localhost:9092"}, Keyspace: "outbox"}
}

func TestConfig_DefaultsAreValid(t *testing.T) {
	t.Parallel()
	if err := valid().withDefaults().validate(); err != nil {
		t.Errorf("validate() error = %v", err)
	}
}

func TestConfig_SaysEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	c := Config{
		Keyspace: `"Quoted"`, Table: "two words", Topics: map[string]string{"OrderCreated": "no spaces"},
		TopicTemplate: "{event_type}!", Partitions: -2, Replication: -2, ConfidenceWindow: -time.Second,
		RetryMin: time.Minute, RetryMax: time.Second, MaxInFlightRecords: -1,
	}
	err := c.withDefaults().validate()
	if err == nil {
		t.Fatal("validate() = nil")
	}
	for _, field := range []string{
		"Session", "Brokers", "Keyspace", "Table", "Topics", "TopicTemplate", "Partitions", "Replication",
		"ConfidenceWindow", "RetryMax", "MaxInFlightRecords",
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("validate() does not name %s:\n%v", field, err)
		}
	}
	if _, err := New(c); err == nil {
		t.Error("New() took it")
	}
}

func TestConfig_TopicOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		template string
		topics   map[string]string
		want     string
		bad      bool
	}{
		{"", nil, "OrderCreated", false},
		{"{aggregate_type}.events", nil, "order.events", false},
		{"prod-{aggregate_type}-{event_type}", nil, "prod-order-OrderCreated", false},
		{"{event_type}", map[string]string{"OrderCreated": "orders.created"}, "orders.created", false},
		{"{event_type}", map[string]string{"OrderUpdated": "orders.updated"}, "OrderCreated", false},
		{"{event_type}/x", nil, "", true},
	} {
		c := valid()
		c.TopicTemplate, c.Topics = tt.template, tt.topics
		c = c.withDefaults()
		e := outbox.Event{Type: "OrderCreated", AggregateType: "order"}
		got, err := c.topicOf(&e)
		if (err != nil) != tt.bad || !tt.bad && got != tt.want {
			t.Errorf("topicOf() by %q = %q, %v, want %q", tt.template, got, err, tt.want)
		}
		message := outbox.Event{Type: "billing.events", AggregateType: outbox.MessageAggregate}
		c.Topics = map[string]string{message.Type: "elsewhere"}
		if got, err := c.topicOf(&message); err != nil || got != message.Type {
			t.Errorf("topicOf() a message, by %q = %q, %v, want the topic that it names", tt.template, got, err)
		}
	}
}
