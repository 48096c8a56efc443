package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
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

func TestConfig_NamesEveryProblem(t *testing.T) {
	t.Parallel()
	c := Config{Keyspace: `"Quoted"`}
	c.Table, c.Topics, c.TopicTemplate = "two words", map[string]string{"OrderCreated": "no spaces"}, "{event_type}!"
	c.Partitions, c.Replication, c.ConfidenceWindow = -2, -2, -time.Second
	c.RetryMin, c.RetryMax, c.MaxInFlightRecords = time.Minute, time.Second, -1
	c.Tail, c.Orderings, c.RetryDelays = "sometimes", map[string]string{"OrderCreated": "none"}, []time.Duration{0, -1}
	err := c.withDefaults().validate()
	if err == nil {
		t.Fatal("validate() = nil")
	}
	for _, field := range []string{
		"Session", "Brokers", "Keyspace", "Table", "Topics", "TopicTemplate", "Partitions", "Replication",
		"ConfidenceWindow", "RetryMax", "MaxInFlightRecords", "Tail: ", "Orderings", "RetryDelays",
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("validate() does not name %s:\n%v", field, err)
		}
	}
	if _, err := New(c); err == nil {
		t.Error("New() took it")
	}
}
