package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// One process carries two tables, each with its own mapping, topics and checkpoints, and its log
// names the table.
func TestRelays_CarrySeveralTables(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	for _, stmt := range []string{
		"CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
		`CREATE TABLE shop.events (aggregateid text, id timeuuid, aggregatetype text, "type" text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}`,
	} {
		if err := b.session.Query(stmt).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	c, err := parseConfig(t, `
relay:
  topics: [ThingHappened=things]
  confidence_window: 3s
  tables:
    - {keyspace: outbox, table: outbox_messages}
    - {keyspace: shop, table: events, preset: debezium}
`, nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr)
	if err != nil {
		t.Fatal(err)
	}
	confs, err := c.RelayConfigs()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	var log logtest.Buffer
	all, err := app.NewRelays(c, confs, b.session, slog.New(slog.NewTextHandler(&log, nil)), reg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- all.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run() error = %v", err)
		}
		if !strings.Contains(log.String(), "no sequence numbers") {
			t.Errorf("the log does not say that a table has no sequence numbers:\n%s", log.String())
		}
		for line := range strings.Lines(log.String()) {
			if strings.Count(line, " table=") != 1 {
				t.Errorf("the table stands not once in the log's line %s", line)
			}
		}
	}()

	b.add(1, outbox.NewID().UUID(), 0)
	if err := b.session.Query("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('order-42', ?, 'order', 'Placed', '{}')",
		gocql.TimeUUID()).Exec(); err != nil {
		t.Fatal(err)
	}
	client, err := c.Kafka.Client(kgo.ConsumeTopics("things", "outbox.event.order"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var got []string
	for len(got) < 2 {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Topic+" "+e.AggregateType+" "+e.Source)
		}
	}
	slices.Sort(got)
	if want := []string{"outbox.event.order order scylla-outbox/shop.events", "things thing scylla-outbox"}; !slices.Equal(got, want) {
		t.Errorf("the topics have %q, want %q", got, want)
	}

	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "outbox_relay_streams" {
			continue
		}
		var of []string
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			of = append(of, strings.Join(labels, " "))
		}
		if want := []string{"relay=outbox table=outbox.outbox_messages", "relay=outbox table=shop.events"}; !slices.Equal(of, want) {
			t.Errorf("outbox_relay_streams is of %q, want %q", of, want)
		}
	}
	_, detail := all.Readiness()()
	if text, err := json.Marshal(detail); err != nil || !strings.Contains(string(text), `"shop.events":{"state"`) {
		t.Errorf("readiness is %s, %v", text, err)
	}
}

// A table as services have it is carried and verified by its settings, and doctor reports all
// problems of one that does not fit.
func TestRelays_TableOfAService(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	for _, stmt := range []string{
		"CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
		`CREATE TABLE shop.orders (tenant text, "orderId" bigint, n int, "eventId" uuid, kind text, body text, meta text, at text, topic text,
			PRIMARY KEY ((tenant, "orderId"), n)) WITH cdc = {'enabled': true}`,
	} {
		if err := b.session.Query(stmt).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "relay.yaml")
	entry := `
relay:
  confidence_window: 3s
  tables:
    - keyspace: shop
      table: orders
      aggregate_type: order
      columns: {aggregate_id: "tenant, orderId", seq: n, event_id: eventId, event_type: kind, payload: body, headers: meta, created_at: at}
      record_headers: {outbox-topic: topic}
`
	configure := func(entry string) {
		if err := os.WriteFile(file, []byte(entry), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(entry)
	c, err := parseConfig(t, entry, nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr)
	if err != nil {
		t.Fatal(err)
	}
	confs, err := c.RelayConfigs()
	if err != nil {
		t.Fatal(err)
	}
	all, err := app.NewRelays(c, confs, b.session, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- all.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run() error = %v", err)
		}
	}()
	for n := 1; n <= 4; n++ {
		for _, tenant := range []string{"acme", "bolt"} {
			const stmt = `INSERT INTO shop.orders (tenant, "orderId", n, "eventId", kind, body, meta, at, topic) VALUES (?, 7, ?, ?, 'Placed', '{}', '{"a":"b"}', ?, ?)`
			if err := b.session.Query(stmt, tenant, n, gocql.TimeUUID(), time.Now().Format(time.RFC3339Nano), tenant).Exec(); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.until("each event is in the topic that its row names", func() bool {
		ends, err := kadm.NewClient(b.client).ListEndOffsets(t.Context(), "acme", "bolt")
		of := make(map[string]int64)
		ends.Each(func(o kadm.ListedOffset) { of[o.Topic] += max(o.Offset, 0) })
		return err == nil && of["acme"] == 4 && of["bolt"] == 4
	})
	outbox := func(want int, args ...string) string {
		var out bytes.Buffer
		args = append(args, "--config", file, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr)
		if code := run(args, &out, &out); code != want {
			t.Errorf("outbox %q: exit status %d, want %d", args, code, want)
		}
		return out.String()
	}
	if out := outbox(cli.ExitOK, "verify", "--relay-table", "shop.orders", "--until", "0s"); !regexp.MustCompile(`(?m)^events +8$`).MatchString(out) && !strings.Contains(out, "8 events") {
		t.Errorf("verify reports %s, want 8 events", out)
	}
	if out := outbox(cli.ExitOK, "doctor"); !strings.Contains(out, "no id or number twice in a sample of 8 events") {
		t.Errorf("doctor reports %s", out)
	}
	configure(strings.NewReplacer("payload: body", "payload: n", "created_at: at", "created_at: tenant, deliver_at: due", "topic: topic", "topic: subject").Replace(entry))
	out := outbox(cli.ExitFailed, "doctor")
	for _, want := range []string{"column n has type int, which cannot hold payload", "column due is missing", `column subject of record header "outbox-topic" is missing`, "map deliver_at to one of"} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor lacks %q:\n%s", want, out)
		}
	}
}
