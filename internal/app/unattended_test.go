package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// An instance names the tables that no instance publishes in its log, once, in its metric and in
// /readyz.
func TestSharing_NamesTablesThatNobodyPublishes(t *testing.T) {
	t.Parallel()
	w := world.Start(t)
	c, err := parseConfig(t, "", nil, "--kafka-seeds", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	confs, err := c.RelayConfigs()
	if err != nil {
		t.Fatal(err)
	}
	var log logtest.Buffer
	reg := prometheus.NewRegistry()
	s, err := NewSharing(c, confs, w.Session, slog.New(slog.NewTextHandler(&log, nil)), reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	beat := func(relay, instance string) {
		t.Helper()
		if err := w.Session.Query("INSERT INTO outbox.relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, 'outbox.outbox_messages', ?, toTimestamp(now()), '{}')",
			relay, instance).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want float64) {
		t.Helper()
		_, detail := s.Readiness()()
		text, err := json.Marshal(detail)
		if err != nil || strings.Contains(string(text), `"unattended_tables":["outbox.outbox_messages"]`) != (want > 0) {
			t.Errorf("/readyz: %s, %v, want %v tables that nobody publishes", text, err, want)
		}
		metric := fmt.Sprintf("# HELP outbox_relay_tables_unattended %s\n# TYPE outbox_relay_tables_unattended gauge\noutbox_relay_tables_unattended{relay=\"outbox\"} %v\n", unattendedHelp, want)
		if err := testutil.GatherAndCompare(reg, strings.NewReader(metric), "outbox_relay_tables_unattended"); err != nil {
			t.Error(err)
		}
	}
	beat("outbox", "host/1/shards")

	// In an outage of the broker nobody owns a shard: the tables are not the problem.
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Member.Run(ctx, "keyspace", s.Carry) }()
	for s.Member.Status().Err == nil {
		time.Sleep(10 * time.Millisecond)
	}
	s.lookForTables(t.Context())
	check(0)
	stop()
	<-ended
	if strings.Contains(log.String(), "no instance publishes tables") {
		t.Errorf("the log names the tables in an outage of the broker:\n%s", log.String())
	}
	reg = prometheus.NewRegistry()
	if s, err = NewSharing(c, confs, w.Session, slog.New(slog.NewTextHandler(&log, nil)), reg, nil); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		s.lookForTables(t.Context())
	}
	check(1)
	if n := strings.Count(log.String(), "no instance publishes tables of the relay"); n != 1 {
		t.Errorf("the log names the tables %d times, want once:\n%s", n, log.String())
	}
	beat("outbox/00-of-01", "host/1")
	s.lookForTables(t.Context())
	check(0)
	if !strings.Contains(log.String(), "is published again") {
		t.Errorf("the log does not say that the table is published:\n%s", log.String())
	}
}
