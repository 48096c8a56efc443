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

// What the relay keeps in the database of its work is not written behind the fence.
func TestFence_NoLateCheckpointsScansAndAnswers(t *testing.T) {
	t.Parallel()
	f := new(relaytest.Fence)
	f.Closed.Store(true)
	ctx := t.Context()
	c := checkpoint.NewCQLStore(nil, "k", "r", "t", "r", f, 0) // without a session: what is written would panic
	scans := checkpoint.NewScans(nil, "k", "r", "t", f)
	answers := backfill.NewRepairs(nil, "k", "r", "t")
	answers.Fence = f
	for what, err := range map[string]error{
		"position":   c.SavePosition(ctx, time.Now(), nil, gocql.UUID{}),
		"generation": c.SaveGeneration(ctx, time.Now()),
		"first":      c.SaveFirst(ctx, time.Now()),
		"scan":       scans.Begin(ctx, &checkpoint.Scan{}, nil),
		"ranges":     scans.Advance(ctx, &checkpoint.Scan{}, nil),
		"answer":     answerOf(answers.Answer(ctx, gocql.UUID{}, backfill.RepairAsked, backfill.RepairTaken, "")),
	} {
		if !errors.Is(err, fence.ErrWrite) || failure.Classify(err) != failure.Stopped {
			t.Errorf("%s: %v, want %v of class stopped", what, err, fence.ErrWrite)
		}
	}
}

// Of two scans that run the newer one goes on: it has taken the other one's rows over.
func TestBackfill_AScanThatWasReplacedStaysSo(t *testing.T) {
	t.Parallel()
	now := time.Now()
	all := []checkpoint.Scan{
		{Started: now, State: checkpoint.ScanNotNeeded},
		{Started: now.Add(-time.Hour), State: checkpoint.ScanRunning},
		{Started: now.Add(-2 * time.Hour), State: checkpoint.ScanRunning}, // written once more by who had lost the shard
	}
	if got := checkpoint.Unfinished(all); got != &all[1] {
		t.Errorf("unfinished() = %+v, want the newer one", got)
	}
	if got := checkpoint.Unfinished(all[:1]); got != nil {
		t.Errorf("unfinished() = %+v, want none", got)
	}
}

func answerOf(_ bool, err error) error { return err }
