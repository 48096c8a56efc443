package app

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

const tablesFile = `
relay:
  source: /shop
  topics: [OrderCreated=orders.created]
  tables:
    - {keyspace: outbox, table: outbox_messages}
    - keyspace: shop
      table: events
      preset: debezium
      columns: {created_at: happened}
      record_headers: {id: id, eventType: type}
    - keyspace: billing
      table: outbox
      columns: {aggregate_id: invoice, seq: "-"}
      aggregate_type: invoice
      topic: billing.${event_type}
      topics: {InvoicePaid: billing.paid}
      source: /billing
      unordered: true
`

func TestTables_EachHasItsConfiguration(t *testing.T) {
	t.Parallel()
	c, err := parseConfig(t, tablesFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	confs, err := c.RelayConfigs()
	if err != nil || len(confs) != 3 {
		t.Fatalf("relayConfigs() = %d, %v, want 3", len(confs), err)
	}
	for i, want := range []struct{ name, source, template, topic, preset string }{
		{"outbox.outbox_messages", "/shop", "{event_type}", "orders.created", ""},
		{"shop.events", "/shop/shop.events", "", "", outbox.PresetDebezium},
		{"billing.outbox", "/billing", "billing.${event_type}", "", ""},
	} {
		got := &confs[i]
		if TableName(got) != want.name || got.Source != want.source || got.TopicTemplate != want.template || got.Topics["OrderCreated"] != want.topic || got.Mapping.Preset != want.preset {
			t.Errorf("table %d is %s: source %q, topic %q and %v, preset %q, want %+v", i, TableName(got), got.Source, got.TopicTemplate, got.Topics, got.Mapping.Preset, want)
		}
		if got.Keyspace != "outbox" {
			t.Errorf("table %d keeps its checkpoints in %q, want outbox", i, got.Keyspace)
		}
	}
	last := confs[2]
	if last.Mapping.Columns["aggregate_id"] != "invoice" || last.Mapping.AggregateType != "invoice" || !last.Mapping.Unordered || last.Topics["InvoicePaid"] != "billing.paid" {
		t.Errorf("mapping %+v, topics %v", last.Mapping, last.Topics)
	}
	if confs[1].Mapping.Columns["created_at"] != "happened" || confs[1].Mapping.RecordHeaders["eventType"] != "type" || len(confs[1].Mapping.RecordHeaders) != 2 {
		t.Errorf("mapping %+v", confs[1].Mapping)
	}
}

func TestTables_OneWithoutAList(t *testing.T) {
	t.Parallel()
	c, err := parseConfig(t, "", nil, "--relay-table", "mine", "--scylla-keyspace", "shop")
	if err != nil {
		t.Fatal(err)
	}
	confs, err := c.RelayConfigs()
	if err != nil || len(confs) != 1 || confs[0].Keyspace != "shop" || confs[0].Table != "mine" || confs[0].Source != "scylla-outbox" {
		t.Errorf("relayConfigs() = %+v, %v", confs, err)
	}
}

func TestTables_SayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"relay: {tables: [{name: x}]}":                                      "relay.tables",
		"relay: {tables: [{table: a}, {table: a}]}":                         "listed twice",
		"relay: {tables: [{}, {keyspace: outbox}]}":                         "outbox.outbox_messages is listed twice",
		"relay: {tables: 7}":                                                "relay.tables",
		"relay: {tables: [{table: a, source: /s}, {table: b, source: /s}]}": "outbox.a and outbox.b have the same source",
		"relay: {tables: [{columns: [a]}]}":                                 "relay.tables",
		"relay: {tablez: [{}]}":                                             "unknown key",
	} {
		c, err := parseConfig(t, file, nil)
		if err == nil {
			_, err = c.RelayConfigs()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", file, err, want)
		}
	}
}

// The tools read one of the tables.
func TestTables_ToolsReadOne(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"": "", "shop events": "", "outbox shop.events": "", "shop none": "is not in relay.tables", "outbox shop.none": "shop.none is not in",
	} {
		var flags []string
		if ks, table, ok := strings.Cut(args, " "); ok {
			flags = []string{"--scylla-keyspace", ks, "--relay-table", table}
		}
		c, err := parseConfig(t, tablesFile, nil, flags...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Only()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: only() error = %v, want %q", args, err, want)
		}
	}
}

// packets is a socket without a network.
type packets struct {
	net.PacketConn
	in chan []byte
}

// ReadFrom returns what comes in.
func (p *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	d, ok := <-p.in
	if !ok {
		return 0, nil, net.ErrClosed
	}
	return copy(b, d), nil, nil
}

// Every relay gets every hint, and one that ends does not end the others.
func TestFanOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := &packets{in: make(chan []byte)}
		fan := newHintFan(conn)
		branches := []*branch{fan.branch(), fan.branch(), fan.branch(), fan.branch()}
		fan.drop(branches[3])
		if err := branches[1].SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		conn.in <- []byte("one")
		synctest.Wait()
		for i, b := range branches {
			buf := make([]byte, 10)
			n, _, err := b.ReadFrom(buf)
			if i != 1 && i != 3 && (err != nil || string(buf[:n]) != "one") {
				t.Errorf("branch %d: %q, %v", i, buf[:n], err)
			}
		}
		close(conn.in)
		for i, b := range branches {
			if _, _, err := b.ReadFrom(make([]byte, 10)); err == nil && i != 1 && i != 3 {
				t.Errorf("branch %d goes on after the socket is closed", i)
			}
		}
	})
}

// The dead letters of subscriptions are stored under this name.
func TestTables_KeyspaceOfSubscriptionsIsReserved(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"scylla: {keyspace: subscription}", "relay: {tables: [{keyspace: subscription, table: events}]}"} {
		c, err := parseConfig(t, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.RelayConfigs(); err == nil || !strings.Contains(err.Error(), "reserved") {
			t.Errorf("%s: %v", text, err)
		}
	}
	// Its outlines need not outlive rows: there are none.
	if ttl, err := RowTTL(t.Context(), nil, "subscription.inventory"); err != nil || ttl != time.Second {
		t.Errorf("RowTTL() = %s, %v", ttl, err)
	}
}

// A relay whose configuration leaves its table's keyspace out has one name everywhere.
func TestTableName(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]relay.Config{
		"shop.events":   {Keyspace: "outbox", TableKeyspace: "shop", Settings: relay.Settings{Table: "events"}},
		"outbox.events": {Keyspace: "outbox", Settings: relay.Settings{Table: "events"}},
	} {
		if got := TableName(&c); got != want {
			t.Errorf("TableName() = %q, want %q", got, want)
		}
	}
}
