package verify

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// memDuty is a Duty in memory.
type memDuty struct {
	mu    sync.Mutex
	lost  bool
	state string
}

func (d *memDuty) Hold(ctx context.Context, f func(context.Context) error) error {
	if !d.mu.TryLock() {
		return nil
	}
	defer d.mu.Unlock()
	return f(ctx)
}

func (d *memDuty) State(context.Context) (string, error) { return d.state, nil }

func (d *memDuty) Save(_ context.Context, state string) (bool, error) {
	if !d.lost {
		d.state = state
	}
	return !d.lost, nil
}

// Another process resumes an interrupted pass before the first missing event and reports
// missing events; the last full pass is known after a restart.
func TestVerifier_ContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		duty := new(memDuty)
		s := &synthetic{rows: 20_000, lost: map[int]bool{7: true}}
		start := func() *pass {
			p := s.pass(t, new(strings.Builder), 100_000)
			p.v.cfg.Duty = duty
			if err := p.v.load(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(saveEvery)
			return p
		}
		gone := errors.New("the process ends")
		first := start()
		first.rows = &hookedRows{
			rowSource: first.rows, beforeRead: func() { time.Sleep(time.Minute) },
			beforeExists: func() error { return gone }, // when the missing event is to be confirmed
		}
		if err := first.run(t.Context()); !errors.Is(err, gone) {
			t.Fatalf("run() = %v, want %v", err, gone)
		}
		second := start()
		if done := second.v.progress["k.t"].Done; done == 0 {
			t.Fatal("no range of the first pass counts")
		}
		if err := second.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if second.checked == 0 || second.checked == int64(s.rows) || len(second.v.Missing()) != 1 {
			t.Errorf("%d rows were checked and %d are missing, want fewer than %d and 1", second.checked, len(second.v.Missing()), s.rows)
		}
		saved, err := ReadPasses(t.Context(), duty)
		if err != nil || saved["k.t"].Missing != 1 || saved["k.t"].LastPass.IsZero() || saved["k.t"].Done != 0 || !saved["k.t"].Verified.Before(saved["k.t"].Began) {
			t.Errorf("saved is %+v, %v", saved["k.t"], err)
		}
		third := start()
		if n := testutil.ToFloat64(third.v.metrics.missing.WithLabelValues("k.t")); n != 1 {
			t.Errorf("outbox_verify_missing is %v after a restart, want 1", n)
		}
		if at := testutil.ToFloat64(third.v.metrics.lastPass.WithLabelValues("k.t")); int64(at) != saved["k.t"].LastPass.Unix() {
			t.Errorf("the last full pass is %v after a restart, want %v", at, saved["k.t"].LastPass)
		}
		duty.lost = true
		if err := third.run(t.Context()); err == nil || !strings.Contains(err.Error(), "another process verifies") {
			t.Errorf("run() without the duty = %v", err)
		}
	})
}
