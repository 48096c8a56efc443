package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// progress returns the state of a record in subscription s.
func (w *world) progress(s subscriptions.Service, r *kgo.Record) subscriptions.Progress {
	w.t.Helper()
	p, err := s.Progress(context.Background(), "s", subscriptions.Place{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, At: r.Timestamp})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// is fails the test unless a record has a state.
func (w *world) is(s subscriptions.Service, r *kgo.Record, want subscriptions.ProgressState, detail string) subscriptions.Progress {
	w.t.Helper()
	p := w.progress(s, r)
	if p.State != want || !strings.Contains(p.Detail, detail) || p.Subscription != "s" {
		w.t.Fatalf("%s is %+v, want %s %q", r.Value, p, want, detail)
	}
	return p
}

// record publishes an event and returns its record.
func (w *world) record(key, name string) *kgo.Record {
	w.t.Helper()
	r := event("a", key, name)
	w.publish(r)
	w.sleep(time.Second)
	return r
}

// idle returns the service of a process that runs nothing.
func (w *world) idle() *Engine {
	w.t.Helper()
	i, err := NewIdle(Config{Store: w.db, DeadLetters: w.db, Instance: "idle"}, w.adm)
	if err != nil {
		w.t.Fatal(err)
	}
	return i
}

// slowMemory is a database of which each read of a status takes a second.
type slowMemory struct{ *memory }

func (m slowMemory) Get(ctx context.Context, name string) (store.Resource, error) {
	time.Sleep(time.Second)
	return m.memory.Get(ctx, name)
}

func (m slowMemory) Instances(ctx context.Context, name string) ([]subscriptions.InstanceStatus, error) {
	time.Sleep(time.Second)
	return m.memory.Instances(ctx, name)
}

func (m slowMemory) Skips(ctx context.Context, incarnation string) ([]subscriptions.Skip, error) {
	time.Sleep(time.Second)
	return m.memory.Skips(ctx, incarnation)
}

func (m slowMemory) FirstChains(ctx context.Context, table string, most int, f func(dlq.ChainEntry)) (bool, error) {
	time.Sleep(time.Second)
	return m.memory.FirstChains(ctx, table, most, f)
}

// A status takes two round trips to the database: its parts, which do not depend on each other, are read
// concurrently.
func TestIdle_StatusTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		db := slowMemory{w.db}
		i, err := NewIdle(Config{Store: db, DeadLetters: db, Instance: "idle"}, w.adm)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := i.Status(context.Background(), "s"); err != nil {
			t.Fatal(err)
		}
		if rounds := time.Since(began).Seconds(); rounds >= 3 {
			t.Errorf("a status takes %.2f round trips, want 2", rounds)
		}
	})
}

// The status has the time at which the owner's last commit was confirmed.
func TestEngine_StatusHasTheLastCommit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p, ctx := w.start(), context.Background()
		r := w.record("k", "one")
		at := func() time.Time {
			t.Helper()
			st, err := p.Status(ctx, "s")
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range st.Partitions {
				if s.Topic == r.Topic && s.Partition == r.Partition {
					return s.CommittedAt
				}
			}
			t.Fatalf("the status has no partition of the record: %+v", st)
			return time.Time{}
		}
		before := at()
		w.sleep(time.Minute)
		got, err := p.Receive(ctx, "s", subscriptions.Receive{Max: 1})
		if err != nil || len(got) != 1 {
			t.Fatalf("Receive() = %+v, %v", got, err)
		}
		began := time.Now()
		if results, err := p.Settle(ctx, "s", []subscriptions.Settle{{Action: subscriptions.ActionAck, Receipt: got[0].Receipt}}); err != nil || results[0].Code != subscriptions.CodeOK {
			t.Fatalf("Settle() = %+v, %v", results, err)
		}
		acknowledged := time.Now()
		w.sleep(time.Minute)
		if last := at(); !before.Before(began) || last.Before(began) || last.After(acknowledged) {
			t.Errorf("the last commit was at %s before and is at %s, want one between %s and %s", before, last, began, acknowledged)
		}
	})
}

// The list of error classes contains the classes of subscriptions.
func TestClasses_AreListed(t *testing.T) {
	t.Parallel()
	for _, class := range []string{ClassMaxReceive, ClassRejected, ClassRecordGone, ClassMoved, deadletter.ClassReplay, dlq.ClassRedelivery} {
		if !slices.Contains(dlq.ErrorClasses, class) {
			t.Errorf("dlq.ErrorClasses has no %q", class)
		}
	}
}

// The owner shows each step of a message; another process shows the stored state, and nothing
// beyond it.
func TestEngine_ProgressOfEachStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many hours of virtual time")
	}
	inBubble(t, func(w *world) {
		early := w.record("k", "early")
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, MaxReceive: 3, Backoff: time.Hour, MaxBackoff: time.Hour})
		idle := w.idle()
		w.is(idle, early, subscriptions.ProgressSkipped, "before the start")
		p := w.start()
		w.is(p, early, subscriptions.ProgressSkipped, "before the start")
		w.is(idle, early, subscriptions.ProgressSkipped, "before the start")

		r := w.record("k", "e")
		if got := w.is(p, r, subscriptions.ProgressWaiting, ""); got.Owner != p.name || got.Attempts != 0 {
			t.Errorf("waiting %+v", got)
		}
		m := p.one("e", 1)
		if got := w.is(p, r, subscriptions.ProgressProcessing, ""); got.Attempts != 1 || !got.LeaseUntil.Equal(m.LeaseUntil) {
			t.Errorf("processing %+v, want the lease until %s", got, m.LeaseUntil)
		}
		if got := w.is(idle, r, subscriptions.ProgressWaiting, ""); got.Owner != "" {
			t.Errorf("another process shows %+v", got)
		}
		p.ok(subscriptions.ActionNack, m)
		for _, s := range []subscriptions.Service{p, idle} {
			if got := w.is(s, r, subscriptions.ProgressDelayed, ""); got.Attempts != 1 || !got.NextAttempt.After(time.Now()) || got.Error == "" {
				t.Errorf("delayed %+v", got)
			}
		}
		w.sleep(2 * time.Hour)
		m = p.one("e", 2)
		acknowledged := time.Now()
		p.ok(subscriptions.ActionAck, m)
		w.sleep(time.Minute)
		if got := w.is(p, r, subscriptions.ProgressCompleted, ""); !got.ProcessedAt.Equal(acknowledged.Truncate(time.Millisecond)) || got.Attempts != 2 || !got.ProcessedBefore.IsZero() {
			t.Errorf("completed %+v, want processed_at %s", got, acknowledged)
		}
		if got := w.is(idle, r, subscriptions.ProgressCompleted, ""); !got.ProcessedAt.IsZero() || got.ProcessedBefore.Before(acknowledged) {
			t.Errorf("another process shows %+v", got)
		}

		bad := w.record("k", "bad")
		p.ok(subscriptions.ActionReject, p.one("bad", 1))
		w.sleep(time.Second)
		for _, s := range []subscriptions.Service{p, idle} {
			if got := w.is(s, bad, subscriptions.ProgressDeadLettered, ""); got.DeadLetter != w.letter(dlq.Suspended).EventID.String() || got.Attempts != 1 {
				t.Errorf("dead letter %+v", got)
			}
		}
		w.replay(w.letter(dlq.Suspended).EventID)
		m = p.one("bad", 1)
		if got := w.is(p, bad, subscriptions.ProgressProcessing, ""); got.DeadLetter == "" {
			t.Errorf("the replay %+v", got)
		}
		p.ok(subscriptions.ActionAck, m)
		w.sleep(time.Second)
		w.is(p, bad, subscriptions.ProgressCompleted, "")
		w.is(idle, bad, subscriptions.ProgressCompleted, "replay")

		// The next owner knows a time before which the messages had ended.
		p.stop()
		q := w.start()
		if got := w.is(q, r, subscriptions.ProgressCompleted, ""); !got.ProcessedAt.IsZero() || got.ProcessedBefore.Before(acknowledged) || got.ProcessedBefore.After(time.Now()) {
			t.Errorf("after a restart %+v, acknowledged %s", got, acknowledged)
		}
	})
}

// A message that a seek or a purge may have skipped is never called completed.
func TestEngine_ProgressAfterSeekAndPurge(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		idle, p := w.idle(), w.start()
		done := w.record("k1", "done")
		p.ok(subscriptions.ActionAck, p.one("done", 1))
		purged := w.record("k2", "purged")
		w.sleep(time.Second)
		if n, err := p.Purge(context.Background(), "s", subscriptions.Purge{}, "ada"); err != nil || n != 1 {
			t.Fatalf("Purge() = %d, %v", n, err)
		}
		w.is(p, purged, subscriptions.ProgressSkipped, "purged at")
		w.is(p, done, subscriptions.ProgressCompleted, "")
		w.is(idle, purged, subscriptions.ProgressSettled, "the purge of")
		later := w.record("k3", "later")
		p.ok(subscriptions.ActionAck, p.one("later", 1))
		p.stop()
		p = w.start()
		w.is(p, purged, subscriptions.ProgressSettled, "the purge of")
		w.is(p, done, subscriptions.ProgressSettled, "the purge of")
		w.is(p, later, subscriptions.ProgressCompleted, "")

		skipped := w.record("k4", "skipped")
		seek := func(to string) {
			t.Helper()
			if err := p.Seek(context.Background(), "s", subscriptions.Seek{To: to, Partition: -1}, "ada"); err != nil {
				t.Fatal(err)
			}
			w.sleep(10 * time.Second)
		}
		seek(subscriptions.StartLatest)
		for _, s := range []subscriptions.Service{p, idle} {
			w.is(s, skipped, subscriptions.ProgressSettled, "the seek of")
			w.is(s, later, subscriptions.ProgressSettled, "the seek of")
		}
		seek(subscriptions.StartEarliest)
		w.is(p, skipped, subscriptions.ProgressWaiting, "")
		p.ok(subscriptions.ActionAck, p.all()...)
		w.sleep(time.Second)
		w.is(p, skipped, subscriptions.ProgressCompleted, "")
	})
}
