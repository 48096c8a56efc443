package relay

import (
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A dead letter that could not be written before the shard was lost is not written
// afterwards: the next owner may have published the event.
func TestFence_NoLateDeadLetter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		f := new(relaytest.Fence)
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.MaxRecordBytes, c.Fence = 2<<10, f })
		defer w.close()
		r, stop := w.runShard(Shard{Index: 0, Count: 1})
		time.Sleep(5 * time.Second)
		written := w.deadLettersFail()
		e := relaytest.Events(1, 1, "OrderUpdated")[0]
		e.Payload = make([]byte, 4<<10)
		w.write(e)
		for r.Status().Unstored == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second) // it is tried again and again
		f.Closed.Store(true)
		written()
		time.Sleep(time.Minute)
		stop()
		store, err := dlq.Open(w.session, "outbox")
		if err != nil {
			t.Fatal(err)
		}
		if l, err := store.Read(t.Context(), e.ID.UUID()); !errors.Is(err, dlq.ErrNotFound) {
			t.Errorf("Read() = %+v, %v, want no letter", l, err)
		}
	})
}

// The relay does not write its checkpoints, scans and answers to the database once it is fenced.
func TestFence_NoLateCheckpointsScansAndAnswers(t *testing.T) {
	t.Parallel()
	f := new(relaytest.Fence)
	f.Closed.Store(true)
	ctx := t.Context()
	c := checkpoint.NewCQLStore(nil, "k", "r", "t", "r", f, 0) // without a session: a write would panic
	scans := checkpoint.NewScans(nil, "k", "r", "t", f)
	answers := backfill.NewRepairs(nil, "k", "r", "t")
	answers.Fence = f
	for what, err := range map[string]error{
		"position":   c.SavePosition(ctx, time.Now(), nil, gocql.UUID{}),
		"generation": c.SaveGeneration(ctx, time.Now()),
		"first":      c.SaveFirst(ctx, time.Now()),
		"scan":       scans.Begin(ctx, &checkpoint.Scan{}, nil),
		"ranges":     scans.Advance(ctx, &checkpoint.Scan{}, nil),
		"answer":     errorOnly(answers.Answer(ctx, gocql.UUID{}, backfill.RepairAsked, backfill.RepairTaken, "")),
	} {
		if !errors.Is(err, fence.ErrWrite) || failure.Classify(err) != failure.Stopped {
			t.Errorf("%s: %v, want %v of class stopped", what, err, fence.ErrWrite)
		}
	}
}

// Of two scans that run the newer one continues: it has the other one's rows. It does so once it is
// done, too, where the older one became visible only then: the answer to its start was an error.
func TestBackfill_AScanThatWasReplacedStaysSo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		newer checkpoint.Scan
		want  time.Duration // the start of the scan that continues; 0 is none
	}{
		{"runs", checkpoint.Scan{State: checkpoint.ScanRunning}, 2 * time.Hour},
		{"is done", checkpoint.Scan{State: checkpoint.ScanDone}, 0},
		{"has not all rows", checkpoint.Scan{State: checkpoint.ScanDone, From: time.UnixMilli(1)}, time.Hour},
		{"was not needed", checkpoint.Scan{State: checkpoint.ScanNotNeeded}, time.Hour},
	} {
		t.Run("the newer one "+tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				_, session := startNode(t)
				now := time.Now().Truncate(time.Millisecond)
				scans := checkpoint.NewScans(session, "outbox", "relay", "outbox.t", nil)
				tt.newer.Started, tt.newer.Until = now.Add(2*time.Hour), now
				for _, s := range []checkpoint.Scan{tt.newer, {Started: now.Add(time.Hour), State: checkpoint.ScanRunning, Until: now}} {
					if err := scans.Begin(t.Context(), &s, nil); err != nil {
						t.Fatal(err)
					}
				}
				all, err := scans.Load(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var got time.Duration
				if s := checkpoint.Unfinished(all); s != nil {
					got = s.Started.Sub(now)
				}
				if got != tt.want {
					t.Errorf("Unfinished() = the scan of %s, want %s", got, tt.want)
				}
			})
		})
	}
}

func errorOnly(_ bool, err error) error { return err }
