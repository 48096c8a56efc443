package main

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// The verifier of outbox admin finds missing events, and the relay publishes them. It waits for a
// relay that never ran.
func TestVerifier_Repairs(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	a := outbox.NewID().UUID()
	b.add(1, a, 1)
	b.add(2, a, 0)
	b.add(3, outbox.NewID().UUID(), 0)
	now := time.Now().Truncate(time.Millisecond).Add(time.Millisecond)
	if err := b.session.Query("INSERT INTO relay_backfills (relay, table_name, started_at, state, rows_until, ranges) VALUES (?, ?, ?, ?, ?, ?)",
		relay.Defaults().Name, "outbox."+relay.Defaults().Table, now, "done", now, 1).Exec(); err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig(t, "", nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--relay-topics", "ThingHappened=things")
	if err != nil {
		t.Fatal(err)
	}
	c.Verify = app.VerifyConfig{RowsPerSecond: 100_000, Repair: true}
	deadLetters, err := dlq.Open(b.session, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	conf, err := c.Only()
	if err != nil {
		t.Fatal(err)
	}
	conf.Session = b.session
	table := c.VerifierTable(conf, deadLetters)
	if at, err := table.Relay.Passed(t.Context()); err != nil || !at.IsZero() {
		t.Errorf("a relay that never ran has passed %s, %v", at, err)
	}
	r, err := relay.New(b.sweepConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- r.Run(ctx) }()
	reg := prometheus.NewRegistry()
	v := verify.NewVerifier(verify.VerifierConfig{
		Tables: []verify.VerifierTable{table}, Kafka: c.Kafka, Rate: 100_000, Window: 10 * time.Millisecond, Interval: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: reg,
	})
	go func() { v.Run(ctx); ended <- nil }()
	b.awaitPublished(t, 3)
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if stdout, stderr, code := b.verify("--until", "0s"); code != cli.ExitOK || !strings.Contains(stdout, "0 missing, 0 double, 0 out of order") {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
	c.Verify.RowsPerSecond = 0
	if run, err := c.Verifier(b.session, deadLetters, reg, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	} else {
		run(t.Context()) // returns: it is switched off
	}
}
