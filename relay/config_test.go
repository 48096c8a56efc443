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
