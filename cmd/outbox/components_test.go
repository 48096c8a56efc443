package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/engines"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// coreFixture is engines with a keyspace shop that has a component alone.
type coreFixture struct {
	t *testing.T
	e engines.Engines
}

func setupCore(t *testing.T) *coreFixture {
	t.Helper()
	return setupComponent(t, "core", "outbox,core")
}

// setupComponent adds a component to the keyspace, which then has some.
func setupComponent(t *testing.T, one, has string) *coreFixture {
	t.Helper()
	b := &coreFixture{t: t, e: engines.Engines{CQLAddr: "127.0.0.1:0", KafkaAddr: "127.0.0.1:0", Tokens: 4}}
	log := slog.New(slog.DiscardHandler)
	teardown := &daemon.Teardown{Logger: log}
	t.Cleanup(func() {
		if err := teardown.Run(); err != nil {
			t.Error(err)
		}
	})
	if err := b.e.Start(teardown, log); err != nil {
		t.Fatal(err)
	}
	if out, errOut, code := b.run("schema migrate", "--components", one); code != cli.ExitOK || out != "keyspace shop is up to date with "+has+"\n" {
		t.Fatalf("schema migrate: status %d: %s%s", code, out, errOut)
	}
	return b
}

// run runs a command in the keyspace.
func (b *coreFixture) run(command string, args ...string) (stdout, stderr string, code int) {
	b.t.Helper()
	var out, errOut bytes.Buffer
	line := slices.Concat(strings.Fields(command), []string{"--scylla-keyspace", "shop", "--scylla-hosts", b.e.CQLAddr}, args)
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute) // a service that starts does not end by itself
	defer cancel()
	root := newRoot(&out, &errOut)
	root.SetContext(ctx)
	code = cli.Execute(root, line, &errOut)
	return out.String(), errOut.String(), code
}

func (b *coreFixture) session(c *app.Config) *gocql.Session {
	b.t.Helper()
	s, err := c.Scylla.Session("shop")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(s.Close)
	return s
}

// missingOf is the component that each command misses in a keyspace with core alone, by the
// beginning of its name; empty if the command needs no other.
var missingOf = map[string]string{
	"admin": "components dead-letters, schedule, subscriptions", "orders": "component orders",
	"audit": "component dead-letters", "dlq": "component dead-letters", "notifier": "component dead-letters", "events": "component dead-letters",
	"relay": "component dead-letters", "relay reshard": "", "messages": "component schedule", "subscriptions": "component subscriptions", "subscriptions redeliver": "components dead-letters, subscriptions",
	"doctor": "", "schema": "", "status": "component dead-letters", "verify": "",
}

// Every command that connects to the database works with the component core, or fails
// immediately with the component that it needs and the command that adds it.
func TestComponents_EachCommand(t *testing.T) {
	t.Parallel()
	b := setupCore(t)
	eachDatabaseCommand(func(c *cobra.Command, name string) {
		t.Run(name, func(t *testing.T) {
			args := withFiles(t, requiredArguments(c, name))
			if c.Flags().Lookup("kafka-seeds") != nil {
				args = append(args, "--kafka-seeds", b.e.KafkaAddr)
			}
			first, _, _ := strings.Cut(name, " ")
			want, ok := missingOf[name]
			if !ok {
				want, ok = missingOf[first]
			}
			if !ok {
				t.Fatal("missingOf has no entry")
			}
			out, errOut, code := b.run(name, args...)
			if strings.Contains(errOut, "unconfigured table") || strings.Contains(out, "unconfigured table") {
				t.Errorf("it reads a missing table:\n%s%s", out, errOut)
			}
			if want == "" {
				if strings.Contains(errOut, "does not have the component") {
					t.Errorf("exit status %d: %s", code, errOut)
				}
				return
			}
			_, names, _ := strings.Cut(want, " ")
			add := "outbox schema migrate --scylla-keyspace shop --components " + strings.ReplaceAll(names, ", ", ",")
			if code != cli.ExitUsage || !strings.Contains(errOut, "keyspace shop does not have the "+want+"\n") || !strings.Contains(errOut, "hint: "+add) {
				t.Errorf("exit status %d, %s, want %s missing and %q", code, errOut, want, add)
			}
		})
	})
}

// The relay publishes the events of outbox_messages and of a table of the user's own, and saves
// checkpoints, in a keyspace with the component core alone.
func TestComponents_RelayWithCore(t *testing.T) {
	t.Parallel()
	b := setupCore(t)
	c, err := parseConfig(t, `
relay:
  dead_letters: false
  confidence_window: 1s
  tables: [{}, {table: events, preset: debezium, topic: own}]
  topics: [ThingHappened=things]
`, nil, "--scylla-hosts", b.e.CQLAddr, "--scylla-keyspace", "shop", "--kafka-seeds", b.e.KafkaAddr, "--ops-addr", "off", "--relay-session-timeout", "5m")
	if err != nil {
		t.Fatal(err)
	}
	session := b.session(c)
	if err := session.Query("CREATE TABLE events (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}").Exec(); err != nil {
		t.Fatal(err)
	}
	log, stop := startConfigured(t, c)
	defer func() {
		stop()
		for _, bad := range []string{"unconfigured table", "level=WARN", "level=ERROR"} {
			if strings.Contains(log.text(), bad) {
				t.Errorf("the log contains %q:\n%s", bad, log.text())
			}
		}
	}()
	table, err := outbox.NewTable("shop", "")
	if err != nil {
		t.Fatal(err)
	}
	batch := session.Batch(gocql.LoggedBatch)
	if err := table.Append(batch, thing()); err != nil {
		t.Fatal(err)
	}
	batch.Query("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('a', ?, 'thing', 'OwnHappened', '{}')", gocql.TimeUUID())
	if err := batch.Exec(); err != nil {
		t.Fatal(err)
	}
	client, err := c.Kafka.Client(kgo.ConsumeTopics("things", "own"), kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	wait, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for got := map[string]bool{}; len(got) < 2; {
		f := client.PollFetches(wait)
		if wait.Err() != nil {
			t.Fatalf("published to %v, want things and own:\n%s", got, log.text())
		}
		f.EachRecord(func(r *kgo.Record) { got[r.Topic] = true })
	}
	for _, name := range []string{"shop.outbox_messages", "shop.events"} {
		for saved := false; !saved; time.Sleep(20 * time.Millisecond) {
			iter := session.Query("SELECT table_name, position FROM shop.relay_checkpoints").Iter()
			var of string
			var at gocql.UUID
			for iter.Scan(&of, &at) {
				saved = saved || of == name && at != gocql.UUID{}
			}
			if err := iter.Close(); err != nil || wait.Err() != nil {
				t.Fatalf("no checkpoint of %s: %v", name, err)
			}
		}
	}
	if out, errOut, code := b.run("verify", "--kafka-seeds", b.e.KafkaAddr, "--relay-topics", "ThingHappened=things", "--until", "0s"); code != cli.ExitOK || !strings.Contains(out, "1 events, 1 in their topics") {
		t.Errorf("verify: status %d: %s%s", code, out, errOut)
	}
	if out, errOut, code := b.run("doctor", "--kafka-seeds", b.e.KafkaAddr, "--relay-dead-letters=false", "--relay-topics", "ThingHappened=things"); strings.Contains(out, "dead-letter") || strings.Contains(out, "dead_letter") || !strings.Contains(out, "keyspace shop is up to date with outbox,core,") {
		t.Errorf("doctor: status %d: %s%s", code, out, errOut)
	}
}

// Messages need the component schedule alone. The admin API has the orders of the example once the
// keyspace has their tables, and is complete without them.
func TestComponents_WithoutTheExample(t *testing.T) {
	t.Parallel()
	b := setupComponent(t, "schedule", "outbox,core,schedule")
	secret, file := token(t, "operator")
	tokens, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig(t, string(tokens), nil, "--scylla-hosts", b.e.CQLAddr, "--scylla-keyspace", "shop", "--kafka-seeds", b.e.KafkaAddr,
		"--messages-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--http-drain-delay", "0s")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	c.Scylla.Need(schema.Schedule)
	intake, err := app.StartMessages(t.Context(), c, b.session(c), nil, app.NewRegistry(""), log, c.ListenMessages)
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + intake.Addr
	for _, delay := range []string{"0s", "1h"} {
		status, header, text := sendRequest(t, "POST", url+"/v1/messages", "", `{"topic":"reminders","payload":1,"delay":"`+delay+`"}`)
		if status != 202 {
			t.Fatalf("POST of a message = %d %s", status, text)
		}
		if status, _, text := sendRequest(t, "GET", url+header.Get("Location"), "", ""); status != 200 || strings.Contains(text, "note") {
			t.Errorf("GET of a message after %s = %d %s", delay, status, text)
		}
	}
	for path, want := range map[string]int{"/readyz": 200, "/v1/orders?customer_id=a": 404} {
		if status, _, text := sendRequest(t, "GET", url+path, "", ""); status != want {
			t.Errorf("GET %s of the messages API = %d %s, want %d", path, status, text, want)
		}
	}
	if err := intake.Shutdown(); err != nil {
		t.Error(err)
	}

	gate, err := c.AdminGate(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		add    string
		orders int
		shown  bool
	}{{"subscriptions", 404, false}, {"orders", 200, true}} {
		if out, errOut, code := b.run("schema migrate", "--components", step.add); code != cli.ExitOK {
			t.Fatalf("schema migrate: status %d: %s%s", code, out, errOut)
		}
		a, err := app.StartAdmin(t.Context(), c, gate, b.session(c), nil, app.NewRegistry(""), log, c.ListenAdmin)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{"/v1/orders?customer_id=a": step.orders, "/v1/messages?state=scheduled": 200, "/v1/dead-letters": 200} {
			if status, _, text := sendRequest(t, "GET", "http://"+a.Addr+path, secret, ""); status != want {
				t.Errorf("with %s: GET %s = %d %s, want %d", step.add, path, status, text, want)
			}
		}
		if _, _, text := sendRequest(t, "GET", "http://"+a.Addr+"/console/static/settings.json", "", ""); strings.Contains(text, `"orders":true`) != step.shown {
			t.Errorf("with %s the settings of the console are %s", step.add, text)
		}
		if _, _, text := sendRequest(t, "GET", "http://"+a.Addr+"/openapi.json", "", ""); strings.Contains(text, "/v1/orders") != step.shown || !strings.Contains(text, "/v1/messages/cancel") {
			t.Errorf("with %s the description is %s", step.add, text)
		}
		if err := a.Shutdown(); err != nil {
			t.Error(err)
		}
	}
}

// A service has the three tables of the component outbox in its keyspace. A relay with a
// keyspace of its own publishes its events; in that of the service it does not start.
func TestComponents_RelayBesideAService(t *testing.T) {
	t.Parallel()
	b := setupComponent(t, "outbox", "outbox")
	if out, errOut, code := b.run("relay", "--kafka-seeds", b.e.KafkaAddr, "--ops-addr", "off"); code != cli.ExitUsage || !strings.Contains(errOut, "keyspace shop does not have the components core, dead-letters\n") {
		t.Errorf("relay in the keyspace of the service: status %d: %s%s", code, out, errOut)
	}
	if out, errOut, code := b.run("schema migrate", "--components", "core", "--scylla-keyspace", "outbox"); code != cli.ExitOK {
		t.Fatalf("schema migrate: status %d: %s%s", code, out, errOut)
	}
	c, err := parseConfig(t, `
relay:
  dead_letters: false
  confidence_window: 1s
  tables: [{keyspace: shop, table: outbox_messages}]
`, nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--ops-addr", "off", "--relay-session-timeout", "5m")
	if err != nil {
		t.Fatal(err)
	}
	log, stop := startConfigured(t, c)
	defer stop()
	table, err := outbox.NewTable("shop", "")
	if err != nil {
		t.Fatal(err)
	}
	session, e := b.session(c), thing()
	batch := session.Batch(gocql.LoggedBatch)
	if err := errors.Join(table.Append(batch, e), batch.Exec()); err != nil {
		t.Fatal(err)
	}
	client, err := c.Kafka.Client(kgo.ConsumeTopics(e.Type), kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	wait, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if records := client.PollFetches(wait).Records(); len(records) != 1 || string(records[0].Key) != e.AggregateID.String() {
		t.Fatalf("%d records, want the event:\n%s", len(records), log.text())
	}
	iter := session.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'shop'").Iter()
	var tables []string
	for name := ""; iter.Scan(&name); {
		if !strings.HasSuffix(name, "$paxos") {
			tables = append(tables, name)
		}
	}
	if want := []string{"outbox_messages", "outbox_messages_scylla_cdc_log", "outbox_sweeps", "schema_locks", "schema_migrations"}; iter.Close() != nil || !slices.Equal(tables, want) {
		t.Errorf("tables of the service: %q, want %q", tables, want)
	}
}

// thing returns an event of a new aggregate.
func thing() outbox.Event {
	return outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.NewID(), Sequence: 1, AggregateType: "thing", Type: "ThingHappened",
		Payload: []byte("{}"), CreatedAt: time.Now(),
	}
}

// Without the tables of dead letters and subscriptions, an event has none of them.
func TestComponents_EventsWithCore(t *testing.T) {
	t.Parallel()
	b := setupCore(t)
	c, err := parseConfig(t, "", nil, "--scylla-hosts", b.e.CQLAddr, "--scylla-keyspace", "shop", "--kafka-seeds", b.e.KafkaAddr)
	if err != nil {
		t.Fatal(err)
	}
	table, err := outbox.NewTable("shop", "")
	if err != nil {
		t.Fatal(err)
	}
	lost, published := thing(), thing()
	batch := b.session(c).Batch(gocql.LoggedBatch)
	batch.Query("INSERT INTO shop.relay_topics (relay, table_name, topic) VALUES ('outbox', 'shop.outbox_messages', ?)", published.Type)
	if err := errors.Join(table.Append(batch, lost), table.Append(batch, published), batch.Exec()); err != nil {
		t.Fatal(err)
	}
	client, err := c.Kafka.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 3, 1, nil, published.Type); err != nil {
		t.Fatal(err)
	}
	r := &kgo.Record{Topic: published.Type, Key: []byte(published.AggregateID.String()), Value: published.Payload}
	r.Headers = outbox.AppendHeaders(r.Headers, &published, "scylla-outbox")
	if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	out, errOut, code := b.run("verify", "--kafka-seeds", b.e.KafkaAddr, "--until", "0s")
	if code != cli.ExitFailed || !strings.Contains(out, "2 events, 1 in their topics: 1 missing") {
		t.Errorf("verify: status %d: %s%s", code, out, errOut)
	}
	if out, errOut, code := b.run("schema migrate", "--components", "dead-letters"); code != cli.ExitOK {
		t.Fatalf("schema migrate: status %d: %s%s", code, out, errOut)
	}
	out, errOut, code = b.run("events", "get", published.ID.String(), "--aggregate-id", published.AggregateID.String(), "--kafka-seeds", b.e.KafkaAddr)
	if code != cli.ExitOK || !strings.Contains(out, "  published  ") || strings.Contains(out, "subscriptions") {
		t.Errorf("event: status %d: %s%s", code, out, errOut)
	}
	out, errOut, code = b.run("events", published.AggregateID.String(), "--kafka-seeds", b.e.KafkaAddr)
	if code != cli.ExitOK || !strings.Contains(out, "  published  ") || strings.Contains(out+errOut, "scheduled") {
		t.Errorf("events of the aggregate: status %d: %s%s", code, out, errOut)
	}
}

// A component that is added later is migrated, and commands that need it work.
func TestComponents_AddedLater(t *testing.T) {
	t.Parallel()
	b := setupCore(t)
	out, errOut, code := b.run("doctor", "--kafka-seeds", b.e.KafkaAddr)
	if code != cli.ExitFailed || !strings.Contains(out, "components of the relay: keyspace shop does not have dead-letters") || !strings.Contains(out, "outbox schema migrate --scylla-keyspace shop --components dead-letters; or set relay.dead_letters to false") {
		t.Errorf("doctor: status %d: %s%s", code, out, errOut)
	}
	for _, bad := range []string{"letters", "core,,orders", ""} {
		if out, errOut, code := b.run("schema migrate", "--components", bad); code != cli.ExitUsage || !strings.Contains(errOut, "use outbox,core,dead-letters,schedule,subscriptions,orders") {
			t.Errorf("--components %q: status %d: %s%s", bad, code, out, errOut)
		}
	}
	out, errOut, code = b.run("schema migrate", "--components", "subscriptions", "--dry-run")
	if code != cli.ExitOK || !strings.Contains(out, "component dead-letters\n  would apply 004 dead_letters\n") || !strings.Contains(out, "component subscriptions\n  would apply 006 subscriptions\n") ||
		strings.Contains(out, "component core") || strings.Contains(out, "component orders") || !strings.Contains(out, "2 migrations of keyspace shop") {
		t.Errorf("--dry-run: status %d: %s%s", code, out, errOut)
	}
	if out, errOut, code := b.run("schema migrate", "--components", "dead-letters"); code != cli.ExitOK || out != "keyspace shop is up to date with outbox,core,dead-letters\n" {
		t.Errorf("schema migrate: status %d: %s%s", code, out, errOut)
	}
	if out, errOut, code := b.run("schema migrate", "--dry-run"); code != cli.ExitOK || out != "keyspace shop is up to date with outbox,core,dead-letters\n" {
		t.Errorf("--dry-run: status %d: %s%s", code, out, errOut)
	}
	if out, errOut, code := b.run("schema status"); code != cli.ExitOK || !strings.Contains(out, "components outbox,core,dead-letters\n") || !strings.Contains(out, "absent") || strings.Contains(out, "pending") {
		t.Errorf("schema status: status %d: %s%s", code, out, errOut)
	}
	if out, errOut, code := b.run("dlq list"); code != cli.ExitOK {
		t.Errorf("dlq list: status %d: %s%s", code, out, errOut)
	}
	// The sweep of old dead letters passes without the table of subscriptions.
	if out, errOut, code := b.run("dlq archive run", "--archive-url", t.TempDir(), "--yes", "--reason", "a test"); strings.Contains(errOut, "unconfigured table") {
		t.Errorf("dlq archive run: status %d: %s%s", code, out, errOut)
	}
}

func TestComponents_Completion(t *testing.T) {
	t.Parallel()
	for word, want := range map[string][]string{
		"":                      {"outbox", "core", "dead-letters", "schedule", "subscriptions", "orders"},
		"core,orders,":          {"core,orders,outbox", "core,orders,dead-letters", "core,orders,schedule", "core,orders,subscriptions"},
		"schedule,dead-letters": {"schedule,outbox", "schedule,core", "schedule,dead-letters", "schedule,subscriptions", "schedule,orders"},
	} {
		var out bytes.Buffer
		root := newRoot(&out, io.Discard)
		root.SetArgs([]string{"__complete", "schema", "migrate", "--components", word})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(out.String()); !slices.Equal(got[:len(got)-1], want) {
			t.Errorf("completion of %q = %q, want %q", word, got, want)
		}
	}
	for _, command := range []string{"schema migrate", "schema print"} {
		c, _, err := newRoot(io.Discard, io.Discard).Find(strings.Fields(command))
		if err != nil || !strings.Contains(c.Flags().Lookup("components").Usage, schema.JoinComponents(schema.Components())) {
			t.Errorf("%s --help does not name the components, %v", command, err)
		}
	}
}

// startConfigured runs the relays of a configuration until stop, and returns their log.
func startConfigured(t *testing.T, c *app.Config) (log *watched, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd, ended, log := &cobra.Command{}, make(chan error, 1), &watched{}
	cmd.SetContext(ctx)
	cmd.SetErr(log)
	go func() { ended <- app.RunRelay(cmd, c, app.BackfillRequest{}) }()
	return log, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("RunRelay() = %v", err)
		}
	}
}
