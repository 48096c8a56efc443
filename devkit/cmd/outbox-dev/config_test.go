package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// --config takes tables, topics and rules of a relay, and neither its connections nor what
// would refuse the sample orders.
func TestRun_ConfigOfARelay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(file, []byte(`scylla: {hosts: ["scylla.example"], username: production, keyspace: mine}
kafka: {seeds: ["kafka.example:9092"], sasl: plain, username: production}
http: {tokens: ["a:admin:sha256:0000000000000000000000000000000000000000000000000000000000000000"]}
messages: {addr: "127.0.0.1:18080"}
relay:
  confidence_window: 3s
  topics: [OrderCreated=orders.created]
  tables: [{keyspace: shop, table: events, preset: debezium}, {keyspace: shop, table: parcels, topic: parcels}]
  rules: [{name: later, strategy: manual}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	d := dev{config: file, window: devWindow}
	cmd := newRunCommand()
	c, err := d.settings(cmd.Flags())
	if err != nil {
		t.Fatal(err)
	}
	d.conf = c
	if len(c.Scylla.Hosts) != 1 || c.Scylla.Hosts[0] != "127.0.0.1:9042" || c.Scylla.Username != "" || c.Kafka.SASL != "" || len(c.HTTP.Tokens) > 0 {
		t.Errorf("connections %+v, %+v, %d tokens, want those of the embedded engines", c.Scylla, c.Kafka, len(c.HTTP.Tokens))
	}
	if c.Scylla.Keyspace != "mine" || d.msgAddr != "127.0.0.1:18080" || d.window != 3*time.Second || len(c.Relay.Rules) != 1 {
		t.Errorf("keyspace %s, messages at %s, window %s, %d rules, want those of the file", c.Scylla.Keyspace, d.msgAddr, d.window, len(c.Relay.Rules))
	}
	confs, err := d.relayConfigs()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"shop.events", "shop.parcels", "mine.outbox_messages"}; !slices.Equal(d.tables, want) || len(confs) != 3 {
		t.Errorf("tables %q, want %q", d.tables, want)
	}
	if want := []string{"orders.created", "OrderUpdated", "OrderCancelled"}; !slices.Equal(d.topics, want) {
		t.Errorf("topics of orders %q, want %q", d.topics, want)
	}
	if want := []string{"parcels", "orders.created", "OrderUpdated", "OrderCancelled"}; !slices.Equal(d.allTopics(), want) {
		t.Errorf("all topics %q, want %q", d.allTopics(), want)
	}
	if topic, err := d.topicOf(&outbox.Event{Type: "OrderCreated", AggregateType: "order"}); err != nil || topic != "orders.created" {
		t.Errorf("topic of OrderCreated = %s, %v", topic, err)
	}
}

// A cluster's window of minutes does not slow the embedded engines down, and a table of the
// file in place of the order service's does not end its events.
func TestRun_ConfigOfAnotherTable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(file, []byte("relay: {table: own, confidence_window: 2m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := dev{config: file, window: devWindow}
	c, err := d.settings(newRunCommand().Flags())
	if err != nil {
		t.Fatal(err)
	}
	confs, err := c.RelayConfigs()
	if err != nil {
		t.Fatal(err)
	}
	var tables []string
	for i := range confs {
		tables = append(tables, app.TableName(&confs[i]))
	}
	if want := []string{"outbox.own", "outbox.outbox_messages"}; d.window != devWindow || !slices.Equal(tables, want) {
		t.Errorf("window %s, tables %q, want %s and %q", d.window, tables, devWindow, want)
	}
}
