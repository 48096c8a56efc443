package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/engines"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// verifyFixture is engines with a schema, and what a service and a relay would write to them.
type verifyFixture struct {
	t       *testing.T
	e       engines.Engines
	session *gocql.Session
	client  *kgo.Client
	// teardown stops the engines.
	teardown *daemon.Teardown
	server   string // file with the settings of the admin API that commands use; empty for the database
	url      string // of a process of subscriptions, after subscribed
}

func setupVerify(t *testing.T) *verifyFixture {
	t.Helper()
	b := &verifyFixture{t: t, e: engines.Engines{CQLAddr: "127.0.0.1:0", KafkaAddr: "127.0.0.1:0", Tokens: 4}}
	b.setup()
	return b
}

// setup starts the engines, and makes the tables and the topic.
func (b *verifyFixture) setup() {
	b.t.Helper()
	b.start()
	b.t.Cleanup(b.stop)
	c, err := parseConfig(b.t, "", nil, "--scylla-hosts", b.e.CQLAddr)
	if err != nil {
		b.t.Fatal(err)
	}
	o := c.SchemaOptions(slog.New(slog.DiscardHandler))
	o.Components = schema.Components()
	session, err := c.Scylla.Session("")
	if err != nil {
		b.t.Fatal(err)
	}
	defer session.Close()
	if err := schema.Migrate(b.t.Context(), session, o); err != nil {
		b.t.Fatal(err)
	}
	b.connect()
	if _, err := kadm.NewClient(b.client).CreateTopic(b.t.Context(), 3, 1, nil, "things"); err != nil {
		b.t.Fatal(err)
	}
}

// start starts the engines.
func (b *verifyFixture) start() {
	b.t.Helper()
	log := slog.New(slog.DiscardHandler)
	b.teardown = &daemon.Teardown{Logger: log}
	if err := b.e.Start(b.teardown, log); err != nil {
		b.t.Fatal(err)
	}
}

// connect connects to the engines.
func (b *verifyFixture) connect() {
	b.t.Helper()
	c, err := parseConfig(b.t, "", nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.session, err = c.Scylla.Session("outbox"); err != nil {
		b.t.Fatal(err)
	}
	if b.client, err = c.Kafka.Client(); err != nil {
		b.t.Fatal(err)
	}
}

// stop stops the engines.
func (b *verifyFixture) stop() {
	b.t.Helper()
	if b.session != nil {
		b.session.Close()
		b.client.Close()
	}
	if err := b.teardown.Run(); err != nil {
		b.t.Error(err)
	}
}

// add writes an event to the outbox, and to its topic so many times.
func (b *verifyFixture) add(seq int64, aggregate gocql.UUID, records int) outbox.Event {
	b.t.Helper()
	e := outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.IDFromUUID(aggregate), Sequence: seq, AggregateType: "thing", Type: "ThingHappened",
		Payload: []byte("{}"), CreatedAt: time.Now(),
	}
	batch := b.session.Batch(gocql.LoggedBatch)
	if err := outbox.Append(batch, e); err != nil {
		b.t.Fatal(err)
	}
	if err := batch.Exec(); err != nil {
		b.t.Fatal(err)
	}
	for range records {
		r := &kgo.Record{Topic: "things", Key: []byte(aggregate.String()), Value: e.Payload}
		r.Headers = outbox.AppendHeaders(r.Headers, &e, relay.Defaults().Source)
		if err := b.client.ProduceSync(b.t.Context(), r).FirstErr(); err != nil {
			b.t.Fatal(err)
		}
	}
	return e
}

func (b *verifyFixture) verify(args ...string) (stdout, stderr string, code int) {
	b.t.Helper()
	var out, errOut bytes.Buffer
	code = run(append([]string{
		"verify", "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--relay-topics", "ThingHappened=things",
	}, args...), &out, &errOut)
	return out.String(), errOut.String(), code
}

func TestVerify_ReportsProblemsAndFails(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	a := outbox.NewID().UUID()
	b.add(1, a, 1)
	b.add(2, a, 1)
	stdout, stderr, code := b.verify("--until", "0s")
	if code != cli.ExitOK || !strings.Contains(stdout, "2 events, 2 in their topics: 0 missing, 0 double, 0 out of order, 0 gaps") {
		t.Fatalf("status %d\n%s%s", code, stdout, stderr)
	}
	lost, double := b.add(3, a, 0), b.add(1, outbox.NewID().UUID(), 2)
	stdout, stderr, code = b.verify("--until", "0s")
	if code != cli.ExitFailed {
		t.Errorf("status %d, want %d\n%s", code, cli.ExitFailed, stderr)
	}
	for _, want := range []string{
		"missing     event " + lost.ID.String(), "topic things",
		"double      event " + double.ID.String(), "things[",
		"4 events, 3 in their topics: 1 missing, 1 double, 0 out of order",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("stdout does not say %q:\n%s", want, stdout)
		}
	}

	stdout, _, code = b.verify("--until", "0s", "-o", "json")
	var got struct {
		Findings []verify.Finding `json:"findings"`
		verified
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != cli.ExitFailed {
		t.Fatalf("status %d, %v: %s", code, err, stdout)
	}
	if got.OK || got.Missing != 1 || got.Doubles != 1 || len(got.Findings) != 2 || got.Table != "outbox.outbox_messages" {
		t.Errorf("%+v", got)
	}
}

// A published event whose row the database lost is a problem, unless another source has
// published it.
func TestVerify_RowsThatTheDatabaseLost(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	b.add(1, outbox.NewID().UUID(), 1)
	for _, tt := range []struct {
		source  string
		code    int
		verdict verify.Verdict
		unknown int64
	}{
		{"another-service", cli.ExitOK, verify.VerdictOK, 0},
		{relay.Defaults().Source, cli.ExitFailed, verify.VerdictProblems, 1},
	} {
		e := outbox.Event{
			ID: outbox.NewID(), AggregateID: outbox.NewID(), Sequence: 1, AggregateType: "thing", Type: "ThingHappened", Payload: []byte("{}"), CreatedAt: time.Now(),
		}
		r := &kgo.Record{Topic: "things", Key: []byte(e.AggregateID.String()), Value: e.Payload, Headers: outbox.AppendHeaders([]kgo.RecordHeader(nil), &e, tt.source)}
		if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := b.verify("--until", "0s", "-o", "json")
		var got verified
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != tt.code {
			t.Fatalf("%s: exit status %d, want %d, %v: %s%s", tt.source, code, tt.code, err, stdout, stderr)
		}
		if got.Verdict != tt.verdict || got.OK != (tt.code == cli.ExitOK) || got.Unknown != tt.unknown || got.Foreign != 1 {
			t.Errorf("%s: %+v, want %s with %d unknown and one of another source", tt.source, got, tt.verdict, tt.unknown)
		}
	}
}

// Events that the relay need not have published yet are neither missing nor proven:
// a check of nothing else is not "ok", whether they are in their topics or not.
func TestVerify_YoungEventsAreNotChecked(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	check := func(young, pending int64) {
		t.Helper()
		stdout, stderr, code := b.verify("-o", "json")
		var got verified
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != cli.ExitWaits {
			t.Fatalf("exit status %d, want %d, %v: %s%s", code, cli.ExitWaits, err, stdout, stderr)
		}
		if got.OK || got.Verdict != verify.VerdictNothingChecked || got.Young != young || got.Pending != pending || got.Rows != 0 {
			t.Errorf("%+v, want %d young, %d pending", got, young, pending)
		}
	}
	check(0, 0) // an empty table
	b.add(1, outbox.NewID().UUID(), 0)
	b.add(1, outbox.NewID().UUID(), 1)
	check(2, 1)
	if stdout, stderr, code := b.verify(); code != cli.ExitWaits || !strings.Contains(stdout, "verdict: nothing checked: all 2 events are too young; --wait") {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
}

// With --wait-old the window ends now, or at --until, and the command waits until its
// events are as old as the events that it checks otherwise.
func TestVerifyFlags_Wait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		until       string
		wait        bool
		ends, waits time.Duration // before now; how long
	}{
		{"", false, 150 * time.Second, 0},
		{"", true, 0, 150 * time.Second},
		{"1m", true, time.Minute, 90 * time.Second},
		{"1h", true, time.Hour, 0},
		{"1m", false, time.Minute, 0},
		{"2025-12-30", false, 36 * time.Hour, 0},
		{"2026-01-01", false, 150 * time.Second, 0}, // a day that has not ended
	} {
		f := verifyFlags{since: "2025-12-01", until: tt.until, wait: tt.wait}
		w, wait, err := f.window(2*time.Minute, now)
		if err != nil || now.Sub(w.Until) != tt.ends || wait != tt.waits {
			t.Errorf("--until %q --wait-old=%t: %s before now, wait %s, %v; want %s and %s", tt.until, tt.wait, now.Sub(w.Until), wait, err, tt.ends, tt.waits)
		}
	}
}

// A running relay publishes missing events, and the next verification finds nothing wrong.
func TestVerify_Repair(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	a := outbox.NewID().UUID()
	b.add(1, a, 1)
	b.add(2, a, 0)
	b.add(3, a, 0)
	// The relay leaves all this to a scan whose state is done. Times in the table have
	// milliseconds, so the last write must not be in the same one.
	now := time.Now().Truncate(time.Millisecond).Add(time.Millisecond)
	if err := b.session.Query("INSERT INTO relay_backfills (relay, table_name, started_at, state, rows_until, ranges) VALUES (?, ?, ?, ?, ?, ?)",
		relay.Defaults().Name, "outbox."+relay.Defaults().Table, now, "done", now, 1).Exec(); err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(b.sweepConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stdout, stderr, code := b.verify("--until", "0s", "--repair", "--reason", "INC-7")
	if code != cli.ExitOK || !strings.Contains(stdout, "2 events requested, 2 published") {
		t.Errorf("status %d\n%s%s", code, stdout, stderr)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	stdout, stderr, code = b.verify("--until", "0s", "--from-first", "-o", "json")
	var got verified
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != cli.ExitOK || got.Published != 3 {
		t.Errorf("status %d, %v: %s%s", code, err, stdout, stderr)
	}
}

// Where instances share the relay each shard publishes its own missing events, and none of another
// shard: once, and each aggregate's events in their order.
func TestVerify_RepairWithShards(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	const shards = 4
	var aggregates []gocql.UUID
	missing := make(map[gocql.UUID]int) // by aggregate, of its three events
	perShard := make([]int, shards)
	for i := range 40 {
		a, lost := outbox.NewID().UUID(), i%4
		for findShard(a, shards) != i/4%shards {
			a = outbox.NewID().UUID()
		}
		b.add(1, a, 1)
		for seq := int64(2); seq <= 4; seq++ {
			records := 1
			if seq > int64(4-lost) {
				records = 0
			}
			b.add(seq, a, records)
		}
		aggregates, missing[a] = append(aggregates, a), lost
		perShard[findShard(a, shards)] += lost
	}
	asked := 0
	for i, n := range perShard {
		if asked += n; n < 6 {
			t.Fatalf("%d events of shard %d are missing", n, i)
		}
	}
	// The relays leave all this to scans whose state is done.
	now := time.Now().Truncate(time.Millisecond).Add(time.Millisecond)
	for i := range shards {
		if err := b.session.Query("INSERT INTO relay_backfills (relay, table_name, started_at, state, rows_until, ranges) VALUES (?, ?, ?, ?, ?, ?)",
			relay.Shard{Index: i, Count: shards}.Name(relay.Defaults().Name), "outbox."+relay.Defaults().Table, now, "done", now, 1).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, shards)
	for i := range shards {
		conf := b.sweepConfig()
		conf.Shard = relay.Shard{Index: i, Count: shards}
		r, err := relay.New(conf)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- r.Run(ctx) }()
	}
	stdout, stderr, code := b.verify("--until", "0s", "--repair", "--reason", "INC-7")
	if want := fmt.Sprintf("%d events requested, %d published", asked, asked); code != cli.ExitOK || !strings.Contains(stdout, want) {
		t.Errorf("status %d, want %q\n%s%s", code, want, stdout, stderr)
	}
	stop()
	for range shards {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	got := b.awaitPublished(t, 4*len(aggregates))
	for _, a := range aggregates {
		if want := []int64{1, 2, 3, 4}; !slices.Equal(got[a], want) {
			t.Errorf("aggregate %s of shard %d, of which %d were missing, has %v in its topic, want %v", a, findShard(a, shards), missing[a], got[a], want)
		}
	}
	if stdout, stderr, code = b.verify("--until", "0s"); code != cli.ExitOK || !strings.Contains(stdout, "0 missing, 0 double, 0 out of order") {
		t.Errorf("afterwards: status %d\n%s%s", code, stdout, stderr)
	}
	if left, err := relay.NewRepairs(b.session, "outbox", relay.Defaults().Name, "outbox."+relay.Defaults().Table).All(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("requests left: %+v, %v", left, err)
	}
}

// findShard is which of so many equal parts of the token ring has the aggregate.
func findShard(aggregate gocql.UUID, shards int) int {
	above := uint64(rows.UUIDToken(aggregate)) - 1<<63 - 1
	return int(min(above/(math.MaxUint64/uint64(shards)), uint64(shards-1)))
}

// Without a relay --repair repairs nothing, reports that, and leaves no request behind.
func TestVerify_RepairWithoutARelay(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	lost := b.add(1, outbox.NewID().UUID(), 0)
	stdout, stderr, code := b.verify("--until", "0s", "--repair", "--reason", "INC-7", "--repair-wait", "1ns")
	for _, want := range []string{
		"1 events requested, 0 published", "asked       event " + lost.ID.String(), "is a relay of this name running?",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("stdout does not say %q:\n%s%s", want, stdout, stderr)
		}
	}
	if code != cli.ExitFailed {
		t.Errorf("status %d, want %d", code, cli.ExitFailed)
	}
	if left, err := relay.NewRepairs(b.session, "outbox", relay.Defaults().Name, "outbox."+relay.Defaults().Table).All(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("requests left: %+v, %v", left, err)
	}
}

func TestVerify_NamesTheFix(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	other := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(other, []byte("something else altogether"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want []string
		code int
	}{
		{"a table that is not there", []string{"--relay-table", "nosuch"}, []string{"outbox.nosuch does not exist"}, cli.ExitFailed},
		{"a table that is no outbox", []string{"--relay-table", "orders"}, []string{"outbox.orders is no outbox", "column aggregate_id is missing", "column seq is missing"}, cli.ExitFailed},
		{"somebody's file", []string{"--resume", other}, []string{"belongs to another verification", "hint: remove it"}, cli.ExitFailed},
		{"a time", []string{"--since", "yesterday"}, []string{`--since "yesterday"`, "2026-01-02T15:04:05Z"}, cli.ExitUsage},
		{"times the wrong way round", []string{"--since", "1h", "--until", "2h"}, []string{"is not before"}, cli.ExitUsage},
		{"a rate", []string{"--rate", "-1"}, []string{"--rate"}, cli.ExitUsage},
	} {
		_, stderr, code := b.verify(tt.args...)
		if code != tt.code {
			t.Errorf("%s: status %d, want %d", tt.name, code, tt.code)
		}
		for _, want := range tt.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: stderr does not say %q:\n%s", tt.name, want, stderr)
			}
		}
	}
}

// sweepConfig returns the configuration of a relay that publishes ThingHappened to things by its
// sweep reader alone, and soon.
func (b *verifyFixture) sweepConfig() relay.Config {
	c := relay.Config{Session: b.session, Brokers: []string{b.e.KafkaAddr}, Keyspace: "outbox"}
	c.Topics, c.Tail = map[string]string{"ThingHappened": "things"}, relay.TailOff
	c.ConfidenceWindow, c.IdleDelay, c.IdleCheckpoint = 10*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	return c
}
