package relay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Readiness in an outage of the database: the tail reports it first, with the cause.
func TestStatus_TheTailCannotRead(t *testing.T) {
	t.Parallel()
	cfg := Config{Settings: Settings{StallAfter: 30 * time.Second}}
	cfg.IdleDelay, cfg.BusyDelay, cfg.ConfidenceWindow = 10*time.Second, 5*time.Second, 2*time.Minute
	now := time.Now()
	for _, tt := range []struct {
		name   string
		silent time.Duration // since the tail read and a window was read
		err    error
		want   string
	}{
		{"it reads", 0, nil, ""},
		{"one reading failed", 2 * time.Second, errors.New("timeout"), ""},
		{"none works", 30 * time.Second, errors.New("no hosts available"), "no hosts available"},
		{"nothing says why", 45 * time.Second, nil, "no window"},
	} {
		s := Status{Reading: true, LastWindow: now.Add(-tt.silent), Tail: TailStatus{On: true, LastRead: now.Add(-tt.silent), Err: tt.err}}
		s.Breaker.State = publish.BreakerClosed
		got := strings.Join(s.problems(&cfg, now.Add(-time.Hour), now), "; ")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q in it", tt.name, got, tt.want)
		}
	}
}

// Readiness while an aggregate waits: it names the event and the error of the lookup.
func TestStatus_AnAggregateWaits(t *testing.T) {
	t.Parallel()
	cfg := Config{Settings: Settings{StallAfter: 30 * time.Second}}
	now := time.Now()
	s := Status{Waiting: WaitingAggregates{Count: 1, Oldest: relaytest.Event(1, 3, ""), Since: now.Add(-time.Minute), Err: errors.New("the database is away")}}
	if got := strings.Join(s.problems(&cfg, now, now), "; "); !strings.Contains(got, "before seq 3") || !strings.Contains(got, "the database is away") {
		t.Errorf("problems = %q, want the event and the error", got)
	}
}

// checkpointsFail lets no checkpoint be saved; it returns the rule.
func (w *world) checkpointsFail() (id int) {
	return w.db.Faults().MustAdd(faults.Rule{
		Match:  faults.Match{Table: "relay_checkpoints", Kinds: []engine.OpKind{engine.OpWrite, engine.OpUnloggedBatch}},
		Effect: faults.Effect{Failure: faults.WriteTimeout("", 0, 1)},
	})
}

// Readiness when the database is read and takes no writes: events are published, and the relay
// reports the state that it cannot save. A time in which nothing was to be saved changes nothing in
// that.
func TestStatus_CheckpointsAreNotSaved(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.StallAfter, c.IdleCheckpoint = 30*time.Second, 10*time.Second })
		defer w.close()
		r, stop := w.run()
		time.Sleep(10 * time.Second)
		w.checkpointsFail()
		time.Sleep(15 * time.Second)
		if s := r.Status(); len(s.Problems) != 0 {
			t.Errorf("soon after its first failure it says %q", s.Problems)
		}
		time.Sleep(time.Minute)
		if s := r.Status(); len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "checkpoints cannot be saved since") || s.SaveErr == nil {
			t.Errorf("when none can be saved it says %q", s.Problems)
		}
		w.db.Faults().Clear()
		time.Sleep(30 * time.Second)
		if s := r.Status(); len(s.Problems) != 0 || !s.UnsavedSince.IsZero() {
			t.Errorf("when they are saved it says %q", s.Problems)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A relay to which nothing comes learns soon that its checkpoints can be saved again.
func TestStatus_CheckpointsAreSavedAgain(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.StallAfter, c.IdleCheckpoint = 30*time.Second, 2*time.Minute })
		defer w.close()
		r, stop := w.run()
		time.Sleep(10 * time.Second)
		id := w.checkpointsFail()
		for end := time.Now().Add(time.Hour); r.Status().UnsavedSince.IsZero() && time.Now().Before(end); {
			time.Sleep(time.Second)
		}
		hits := w.db.Faults().Hits(id)
		w.db.Faults().Clear()
		time.Sleep(31 * time.Second)
		if hits == 0 {
			t.Error("nothing was to be saved")
		}
		if s := r.Status(); len(s.Problems) != 0 || !s.UnsavedSince.IsZero() {
			t.Errorf("half a minute after they could be saved again it says %q, unsaved since %s", s.Problems, s.UnsavedSince)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
