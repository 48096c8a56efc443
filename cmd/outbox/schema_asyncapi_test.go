package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// The document has the topics and the source of the relay's settings, and the brokers.
func TestSchemaAsyncAPI(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if code := run([]string{
		"schema", "asyncapi", "--relay-topics", "OrderCreated=orders.created", "--relay-topic", "all.{aggregate_type}",
		"--relay-source", "/shop", "--kafka-seeds", "kafka-1:9092,kafka-2:9092",
	}, &out, io.Discard); code != cli.ExitOK {
		t.Fatalf("status %d", code)
	}
	var doc struct {
		Channels map[string]struct{ Messages map[string]any }
		Servers  map[string]struct{ Host string }
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Channels) != 2 || len(doc.Channels["all.order"].Messages) != 2 || len(doc.Channels["orders.created"].Messages) != 1 {
		t.Errorf("channels %v", doc.Channels)
	}
	if doc.Servers["broker-2"].Host != "kafka-2:9092" || !strings.Contains(out.String(), `"const": "/shop"`) {
		t.Errorf("the document has not these brokers and this source: %s", out.String())
	}
	var bad bytes.Buffer
	if code := run([]string{"schema", "asyncapi", "--relay-topic", "a b"}, io.Discard, &bad); code != cli.ExitUsage {
		t.Errorf("status %d of a topic that Kafka refuses: %s", code, bad.String())
	}
}
