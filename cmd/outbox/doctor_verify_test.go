package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
)

// doctor reports missing events, and a table that is not verified to its end.
func TestDoctor_Verification(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct {
		state verify.PassState
		ok    bool
		says  string
	}{
		"missing":       {verify.PassState{Began: now, LastPass: now, Missing: 3}, false, "3 events"},
		"good":          {verify.PassState{Began: now, LastPass: now, Verified: now}, true, "is missing"},
		"first pass":    {verify.PassState{Began: now, Ranges: 256, Done: 7}, true, "7 of 256"},
		"never ended":   {verify.PassState{Began: now.Add(-3 * verifySlow / 2)}, false, "no full pass"},
		"no longer end": {verify.PassState{Began: now, LastPass: now.Add(-3 * verifySlow / 2)}, false, "no full pass"},
	} {
		if f := passFinding("check", &tt.state, now); f.OK != tt.ok || !strings.Contains(f.Detail, tt.says) || f.OK != (f.Fix == "") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Of several outbox admin one verifies; doctor reads what it has found.
func TestVerifier_OneOfSeveral(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	c, err := configOf(t, "", nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr)
	if err != nil {
		t.Fatal(err)
	}
	c.Verify = app.VerifyConfig{RowsPerSecond: 1000}
	letters, err := dlq.Open(b.session, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	start := func(ctx context.Context) (passes func() float64, ended chan struct{}) {
		reg := prometheus.NewRegistry()
		run, err := c.Verifier(b.session, letters, reg, slog.New(slog.DiscardHandler))
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
	duty, err := letters.Duty(app.VerifyDuty, "another", app.VerifyTTL)
	if err != nil {
		t.Fatal(err)
	}
	if mine, err := duty.Take(t.Context()); err != nil || !mine {
		t.Errorf("the duty of a process that ended: %t, %v", mine, err)
	}
	if f := checkVerification(c, t.Context(), b.session); len(f) != 1 || !f[0].OK {
		t.Errorf("doctor before a pass: %+v", f)
	}
	if kept, err := duty.Save(t.Context(), `{"outbox.outbox_messages":{"ranges":256,"began":"2026-01-02T03:04:05Z","missing":2}}`); err != nil || !kept {
		t.Fatal(kept, err)
	}
	if f := checkVerification(c, t.Context(), b.session); len(f) != 1 || f[0].OK || !strings.Contains(f[0].Detail, "2 events") || !strings.Contains(f[0].Check, "outbox.outbox_messages") {
		t.Errorf("doctor with missing events: %+v", f)
	}
}
