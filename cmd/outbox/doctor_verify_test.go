package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/doctor"
)

// Of several outbox admin one verifies; doctor reads its results.
func TestVerifier_OneOfSeveral(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	c, err := parseConfig(t, "", nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr)
	if err != nil {
		t.Fatal(err)
	}
	c.Verify = app.VerifyConfig{RowsPerSecond: 1000}
	deadLetters, err := dlq.Open(b.session, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	start := func(ctx context.Context) (passes func() float64, ended chan struct{}) {
		reg := prometheus.NewRegistry()
		run, err := c.Verifier(b.session, deadLetters, reg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ended = make(chan struct{})
		go func() { defer close(ended); run(ctx) }()
		return func() float64 { // a pass fails: the relay never ran
			n, err := testutil.GatherAndCount(reg, "outbox_verify_errors_total")
			if err != nil {
				t.Error(err)
			}
			return float64(n)
		}, ended
	}
	ctx, stop := context.WithCancel(t.Context())
	passes, ended := start(ctx)
	for end := time.Now().Add(5 * time.Minute); passes() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no process verifies")
		}
	}
	standby, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	others, over := start(standby)
	<-over
	if n := others(); n != 0 {
		t.Error("a second process verifies too")
	}
	stop()
	<-ended
	duty, err := deadLetters.Duty(app.VerifyDuty, "another", app.VerifyTTL)
	if err != nil {
		t.Fatal(err)
	}
	if mine, err := duty.Take(t.Context()); err != nil || !mine {
		t.Errorf("the duty of a process that ended: %t, %v", mine, err)
	}
	verification := func() []doctor.Finding {
		return slices.DeleteFunc(doctor.Check(t.Context(), c), func(f doctor.Finding) bool { return !strings.HasPrefix(f.Check, "continuous verification") })
	}
	if f := verification(); len(f) != 1 || !f[0].OK {
		t.Errorf("doctor before a pass: %+v", f)
	}
	if kept, err := duty.Save(t.Context(), `{"outbox.outbox_messages":{"ranges":256,"began":"2026-01-02T03:04:05Z","missing":2}}`); err != nil || !kept {
		t.Fatal(kept, err)
	}
	if f := verification(); len(f) != 1 || f[0].OK || !strings.Contains(f[0].Detail, "2 events") || !strings.Contains(f[0].Check, "outbox.outbox_messages") {
		t.Errorf("doctor with missing events: %+v", f)
	}
}
