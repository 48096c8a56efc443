package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// The doctor checks every table that is listed, and reports for each the error with which its relay
// would end at the start.
func TestDoctor_ChecksEveryTable(t *testing.T) {
	t.Parallel()
	c, session, exec := startNode(t, 1, `
relay:
  tables:
    - {keyspace: shop, table: good, preset: debezium}
    - {keyspace: shop, table: nolog, preset: debezium}
    - {keyspace: shop, table: disabled, preset: debezium}
    - {keyspace: shop, table: keys, preset: debezium}
    - {keyspace: shop, table: absent, preset: debezium}
    - {keyspace: shop, table: good2, preset: debezium, columns: {created_at: happend}}
    - {keyspace: shop, table: Capital, preset: debezium}
    - {keyspace: shop, table: brief, preset: debezium}
    - {keyspace: shop, table: forever, preset: debezium}
`)
	const columns = "(aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id))"
	for _, stmt := range []string{
		"CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
		"CREATE TABLE shop.good " + columns + " WITH cdc = {'enabled': true}",
		"CREATE TABLE shop.nolog " + columns,
		"CREATE TABLE shop.disabled " + columns + " WITH cdc = {'enabled': true}",
		"ALTER TABLE shop.disabled WITH cdc = {'enabled': false}",
		"CREATE TABLE shop.keys " + columns + " WITH cdc = {'enabled': true, 'delta': 'keys'}",
		"CREATE TABLE shop.good2 " + columns + " WITH cdc = {'enabled': true}",
		"CREATE TABLE shop.brief " + columns + " WITH cdc = {'enabled': true, 'ttl': 120}", // the confidence window
		"CREATE TABLE shop.forever " + columns + " WITH cdc = {'enabled': true, 'ttl': 0}",
	} {
		exec(stmt)
	}
	found := checkTables(t.Context(), c, session)
	want := []struct{ table, detail, fix string }{
		{"good", "", ""},
		{"nolog", "has no CDC log", "ALTER TABLE shop.nolog WITH cdc"},
		{"disabled", "CDC is disabled", "ALTER TABLE shop.disabled WITH cdc"},
		{"keys", "only the key columns", "ALTER TABLE shop.keys WITH cdc"},
		{"absent", "does not exist", "create it"},
		{"good2", "column happend is missing", "map created_at to one of aggregateid"},
		{"Capital", "use lower-case letters", "does not start"},
		{"brief", "no longer than the confidence window of 2m0s", "ALTER TABLE shop.brief WITH cdc"},
		{"forever", "", ""},
	}
	if len(found) != len(want) {
		t.Fatalf("%d findings, want %d: %+v", len(found), len(want), found)
	}
	for i, w := range want {
		f := found[i]
		if f.Check != "table shop."+w.table || f.OK != (w.detail == "") || !strings.Contains(f.Detail, w.detail) || !strings.Contains(f.Fix, w.fix) {
			t.Errorf("%+v, want of %s: %q and %q", f, w.table, w.detail, w.fix)
		}
	}
}

// The topics of tables are the topics that the settings name, and existing topics of the ones that
// events name; a compacted one is reported.
func TestDoctor_ChecksTheTopicsOfEveryTable(t *testing.T) {
	t.Parallel()
	broker := world.StartBroker(t, kfake.SeedTopics(2, "outbox.event.order", "outbox.event.", "foreign", "bills"))
	c, err := parseConfig(t, `
relay:
  tables:
    - {keyspace: shop, table: events, preset: debezium, topics: {Placed: placed}}
    - {keyspace: shop, table: bills, topic: bills}
    - {keyspace: shop, table: any, topic: "${event_type}"}
    - {keyspace: shop, table: none, topic: "none.${event_type}"}
    - {keyspace: outbox, table: outbox_messages, topic: "orders.{event_type}", topics: {OrderCreated: created}}
`, nil, "--kafka-seeds", broker.ListenAddrs()[0], "--relay-topic-replication", "1")
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.Kafka.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	compact := "compact"
	if _, err := kadm.NewClient(client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: &compact}}, "bills"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"topic outbox.event.order": "2 partitions", "topic placed": "the relay creates it", "topic bills": "compacted",
		"topic created": "the relay creates it", "topic orders.OrderUpdated": "the relay creates it", "topic orders.OrderCancelled": "the relay creates it",
		"topics ${event_type}": "created by the relay for the first event", "topics none.${event_type}": "created by the relay for the first event", "Kafka is reachable": "",
		"topic outbox.relay.outbox.shards": "the relay creates it", "consumer group outbox.relay.outbox": "can be joined",
	}
	for _, f := range checkKafka(t.Context(), c) {
		detail, ok := want[f.Check]
		if !ok || !f.OK || !strings.Contains(f.Detail, detail) || strings.Contains(f.Detail, "compacted") != (f.Check == "topic bills") {
			t.Errorf("%+v, want %q", f, detail)
		}
		delete(want, f.Check)
	}
	if len(want) > 0 {
		t.Errorf("nothing is said of %v", want)
	}
}

// An id of two aggregates and a number of two events are found in a sample of the rows, in tables
// whose columns alone fit.
func TestDoctor_SamplesIDsAndNumbers(t *testing.T) {
	t.Parallel()
	c, session, exec := startNode(t, 1, `
relay:
  tables:
    - {keyspace: shop, table: versions, columns: {seq: version, event_id: id}, aggregate_type: a, topic: v}
    - {keyspace: shop, table: numbers, columns: {seq: version, event_id: id}, aggregate_type: a, topic: n}
    - {keyspace: shop, table: repeats, columns: {seq: version, event_id: id}, aggregate_type: a, topic: r}
    - {keyspace: shop, table: right, columns: {seq: version, event_id: id}, aggregate_type: a, topic: g}
    - {keyspace: shop, table: empty, columns: {seq: version, event_id: id}, aggregate_type: a, topic: e}
`)
	exec("CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
	for _, table := range []string{"versions", "numbers", "repeats", "right", "empty"} {
		exec("CREATE TABLE shop." + table + " (aggregate_id text, version int, id text, event_type text, payload text, PRIMARY KEY (aggregate_id, version, id)) WITH cdc = {'enabled': true}")
	}
	for a := range 4 {
		for version := 1; version <= sampleEvents+5; version++ {
			aggregate := fmt.Sprint("a-", a)
			for table, id := range map[string]string{
				"versions": fmt.Sprint(version), "numbers": fmt.Sprint(a, " ", version), "repeats": fmt.Sprint(a, " ", version/2), "right": fmt.Sprint(a, " ", version),
			} {
				exec("INSERT INTO shop."+table+" (aggregate_id, version, id, event_type, payload) VALUES (?, ?, ?, 'E', 'x')", aggregate, version, id)
			}
		}
	}
	exec("INSERT INTO shop.numbers (aggregate_id, version, id, event_type) VALUES ('a-3', 3, 'another', 'E')")
	found := checkTables(t.Context(), c, session)
	for i, w := range []struct{ detail, fix string }{
		{"has the aggregates", "map event_id to a column"},
		{"number 3 of aggregate a-3 has the events 3 3 and another", "AppendNext"},
		{"has the numbers 2 and 3 in aggregate", "map event_id to a column"},
		{"no id or number twice in a sample of 80 events, at most 20 of a partition", ""},
		{"no id or number twice in a sample of 0 events", ""},
	} {
		f := found[i]
		if f.OK != (w.fix == "") || !strings.Contains(f.Detail, w.detail) || !strings.Contains(f.Fix, w.fix) {
			t.Errorf("%+v, want %q and %q", f, w.detail, w.fix)
		}
	}
}
