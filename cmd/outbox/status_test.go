package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// A relay without heartbeats publishes nothing now, and its last lag is not that of now. The lag of one
// that runs contains the confidence window, as its column states.
func TestStatus_OfASilentRelay(t *testing.T) {
	t.Parallel()
	var r admin.StatusBody
	if err := json.Unmarshal([]byte(`{"relays":[{"name":"outbox","table":"t","shards":[
		{"instance":"a","state":"running","behind_seconds":121.5,"rates":{"published":7}},
		{"instance":"b","state":"silent","silent":true,"behind_seconds":122.5,"rates":{"published":5}}]}]}`), &r); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := writeStatus(&out, &r); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"RELAY outbox OWNER STATE EVENTS/S SWEEP LAG (WITH WINDOW) IN FLIGHT BREAKER STALLED TOPICS",
		"t a running 7.0 121.5s 0 - -", "t none silent 0.0 - 0 - -",
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("the status lacks %q:\n%s", want, out.String())
		}
	}
}

// One command prints the waiting events, the relays, dead letters by cause, subscriptions and the
// last verification, with the problem in the first line; as JSON it has the same.
func TestStatus(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	stopped := time.Now()
	for _, row := range [][3]string{
		{"outbox", "pod-a/1/shards", `{"state":"running","problems":["no heartbeat is acknowledged by the broker"],"sharing":{"shards":2,"owned":[],"error":"dial tcp: connection refused","since":"2026-01-02T03:44:55Z","unreachable":true}}`},
		{"outbox/00-of-02", "pod-a/1", `{"state":"stopped","shard":{"index":0,"count":2},"breaker":{"state":"closed"}}`},
		{"outbox/01-of-02", "pod-a/1", `{"state":"stopped","shard":{"index":1,"count":2},"breaker":{"state":"closed"}}`},
	} {
		if err := b.session.Query("INSERT INTO relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, 'outbox.outbox_messages', ?, ?, ?)",
			row[0], row[1], stopped.Add(time.Hour), row[2]).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	b.writeDeadLetter(1, nil)
	b.writeDeadLetter(2, func(l *dlq.DeadLetter) { l.ErrorClass, l.Status = "breaker_open", dlq.Pending })
	duty, err := b.store.Duty(app.VerifyDuty, "another", app.VerifyTTL)
	if err != nil {
		t.Fatal(err)
	}
	passes, err := json.Marshal(map[string]*verify.PassState{"outbox.outbox_messages": {LastPass: stopped, Verified: stopped, Missing: 4}})
	if err != nil {
		t.Fatal(err)
	}
	if mine, err := duty.Take(t.Context()); err != nil || !mine {
		t.Fatal(mine, err)
	}
	if kept, err := duty.Save(t.Context(), string(passes)); err != nil || !kept {
		t.Fatal(kept, err)
	}
	status := func(args ...string) string {
		t.Helper()
		var out, errOut bytes.Buffer
		if code := run(append(append([]string{"status"}, args...), b.target()...), &out, &errOut); code != cli.ExitOK {
			t.Fatalf("status %v: exit status %d\n%s%s", args, code, out.String(), errOut.String())
		}
		return out.String()
	}
	text := status()
	for _, want := range []string{
		"Broker unreachable since 2026-01-02 03:44:55Z; events are accepted; 1 event waits.", "Dial tcp: connection refused.", "misses 4 events",
		"outbox.outbox_messages, shard 1 of 2", "not in the group", "record_too_large", "breaker_open", "4 events are missing", "waiting", "published",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the status lacks %q:\n%s", want, text)
		}
	}
	// The events that nobody reads are counted in the log.
	for shard := range 2 {
		if err := b.session.Query("UPDATE relay_instances SET at = ? WHERE scope = 'keyspace' AND relay = ? AND table_name = 'outbox.outbox_messages' AND instance = 'pod-a/1'",
			stopped.Add(-time.Minute), []string{"outbox/00-of-02", "outbox/01-of-02"}[shard]).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	for range 7 {
		b.add(1, outbox.NewID().UUID(), 0)
	}
	var got admin.StatusBody
	if err := json.Unmarshal([]byte(status("-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Waiting.Events != 7 || got.Waiting.AtLeast || got.Waiting.Spilled != 1 || got.Outage == nil || got.DeadLetters.Open != 2 || len(got.Verification) != 1 || len(got.Unknown) != 0 {
		t.Errorf("the status is %+v, want 7 waiting events and one spilled", got)
	}
}

// The tables of a relay are rows of one list.
func TestStatus_OneListOfARelay(t *testing.T) {
	t.Parallel()
	var b admin.StatusBody
	text := `{"relays":[{"name":"a","table":"k.one","shards":[{"state":"running"}]},{"name":"a","table":"k.two","shards":[{"state":"running"}]},{"name":"b","table":"k.three"}]}`
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	writeRelays(&out, &b)
	if got := out.String(); strings.Count(got, "RELAY a") != 1 || strings.Count(got, "RELAY b") != 1 || strings.Count(got, "running") != 2 {
		t.Errorf("the relays are\n%s", got)
	}
}
