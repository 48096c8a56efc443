package schedule

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A message that is in memory, because it is due soon, is released immediately,
// too. By the scheduler's clock, which does not advance, it is not due before.
func TestScheduler_HastenedInMemory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	s := b.scheduler(t, func(c *Config) { c.LookAhead, c.Now = time.Minute, func() time.Time { return now } })
	world.Run(t, s.Run)
	m := message(now.Add(50 * time.Second))
	b.put(t, now, m)
	world.Eventually(t, "it is in memory", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pending) == 1
	})
	if err := b.Hasten(t.Context(), m, now); err != nil {
		t.Fatal(err)
	}
	world.Eventually(t, "the message is released", func() bool { return b.count(t, "outbox_messages") == 1 })
	if e := b.readOutbox(t)[m.ID]; !e.DeliverAt.Equal(m.DeliverAt) || e.At.Before(m.DeliverAt) {
		t.Errorf("event %+v, want it for %s", e, m.DeliverAt)
	}
	if ahead := now.Sub(m.DeliverAt); ahead < 0 || ahead > time.Second {
		t.Errorf("at %s it was hastened to %s", now, m.DeliverAt)
	}
	world.Eventually(t, "message and slots are removed", func() bool { return b.count(t, "schedule_slots") == 0 && b.count(t, "scheduled_messages") == 0 })
}

func TestStore_HastenRefusesWhatDoesNotWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	gone, out, due := message(now.Add(time.Hour)), message(now), message(now.Add(-time.Second))
	b.put(t, now.Add(-time.Minute), gone, out, due)
	stale := *gone
	if err := b.Cancel(t.Context(), gone, now); err != nil {
		t.Fatal(err)
	}
	// Reading it before or after makes no difference.
	if err := b.Hasten(t.Context(), &stale, now); !errors.Is(err, ErrCancelled) {
		t.Errorf("Hasten() of a cancelled message = %v", err)
	}
	if won, err := b.release(t.Context(), out, now); err != nil || !won {
		t.Fatalf("release() = %t, %v", won, err)
	}
	out.DeliverAt = now.Add(time.Hour)
	if err := b.Hasten(t.Context(), out, now); !errors.Is(err, ErrReleased) {
		t.Errorf("Hasten() of a released message = %v", err)
	}
	if err := b.forget(t.Context(), now, &dueMessage{Message: *out}); err != nil {
		t.Fatal(err)
	}
	if err := b.Hasten(t.Context(), out, now); !errors.Is(err, ErrNotFound) {
		t.Errorf("Hasten() of a delivered message = %v", err)
	}
	at := due.DeliverAt
	if err := b.Hasten(t.Context(), due, now); err != nil || !due.DeliverAt.Equal(at) {
		t.Errorf("Hasten() of one that is due = %v, and it is for %s", err, due.DeliverAt)
	}
}

// Two processes with different clocks hasten it concurrently: it is due, and in
// the end only the slots of its state and of its time remain.
func TestStore_HastenTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	m := message(now.Add(time.Hour))
	b.put(t, now, m)
	one, two := *m, *m
	if err := b.Hasten(t.Context(), &one, now.Add(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := b.Hasten(t.Context(), &two, now); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Read(t.Context(), m.ID); err != nil || !got.DeliverAt.Equal(two.DeliverAt) || got.DeliverAt.After(now) {
		t.Errorf("Read() = %+v, %v, want it for %s", got, err, now)
	}
	if n := b.count(t, "schedule_slots"); n != 2 {
		t.Errorf("%d slots, want that of its state and that of its time", n)
	}
	// A scheduler that read the previous time does not release it with that time
	// in its event.
	if won, err := b.release(t.Context(), m, now); err != nil || won {
		t.Errorf("release() as it was before = %t, %v", won, err)
	}
}

// Hasten is cut off at each of its writes, with the write executed, omitted, or
// decided but invisible, and not repeated. The message waits for its time or is
// due; it is released once.
func TestStore_HasteningCutOff(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	for name, fate := range map[string]engine.Fate{"lost": engine.FateNormal, "carried out": engine.FateApply, "decided": engine.FateDecided} {
		for step, kind := range []engine.OpKind{engine.OpLoggedBatch, engine.OpCAS} { // slot, time
			if fate == engine.FateDecided && kind != engine.OpCAS {
				continue
			}
			t.Run(name+" at write "+strconv.Itoa(step), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				now := time.Now()
				m := message(now.Add(3 * time.Second))
				b.put(t, now, m)
				id := b.Node.Faults().MustAdd(faults.Rule{
					Match:  faults.Match{Kinds: []engine.OpKind{kind}},
					Effect: faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1), Fate: fate},
				})
				err := b.Hasten(t.Context(), m, now)
				known := kind == engine.OpCAS && fate != engine.FateNormal // the time is determined
				if b.Node.Faults().Hits(id) == 0 || (err == nil) != known {
					t.Fatalf("Hasten() = %v after %d faults", err, b.Node.Faults().Hits(id))
				}
				b.Node.Faults().Clear()
				world.Run(t, b.scheduler(t).Run)
				world.Eventually(t, "the message is released", func() bool { return b.count(t, "outbox_messages") == 1 && b.count(t, "scheduled_messages") == 0 })
				b.readOutbox(t)
			})
		}
	}
}

// A slot of an abandoned Hasten, whose message is due later, is removed; the
// slot at the due time remains.
func TestScheduler_ForgetsASlotThatIsTooEarly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	m := message(now.Add(time.Hour))
	b.put(t, now, m)
	for _, at := range []time.Time{now.Add(-CloseAfter / 2), now.Add(-CloseAfter - time.Second)} {
		if err := b.putSlot(t.Context(), slot{bucket: bucketAt(at), at: at, id: m.ID, topic: m.Topic}); err != nil {
			t.Fatal(err)
		}
	}
	world.Run(t, b.scheduler(t).Run)
	world.Eventually(t, "the old one is forgotten", func() bool { return b.count(t, "schedule_slots") == 2 })
	if n := b.count(t, "outbox_messages"); n != 0 {
		t.Errorf("%d messages went out ahead of their time", n)
	}
	if got, err := b.Read(t.Context(), m.ID); err != nil || got.State != Waiting {
		t.Errorf("Read() = %+v, %v", got, err)
	}
}

// A message is hastened, cancelled and released at its time concurrently: it is
// released once and complete, or cancelled.
func TestScheduler_HasteningRaces(t *testing.T) {
	t.Parallel()
	b, r := setup(t), seeds.Rand(t)
	world.Run(t, b.scheduler(t).Run)
	cancelled := map[gocql.UUID]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	const n = 100
	ms := make([]*Message, n)
	for i := range ms {
		m := message(time.Now().Add(200 * time.Millisecond))
		ms[i] = m
		b.put(t, time.Now(), m)
		seen := *m
		wait := time.Until(m.DeliverAt) + time.Duration(r.IntN(20)-15)*time.Millisecond
		all.Go(func() {
			time.Sleep(wait)
			if err := b.Hasten(t.Context(), &seen, time.Now()); err != nil && !errors.Is(err, ErrReleased) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCancelled) {
				t.Errorf("Hasten() = %v", err)
			}
		})
		if i%3 == 0 {
			wait := time.Until(m.DeliverAt) + time.Duration(r.IntN(20)-15)*time.Millisecond
			all.Go(func() {
				time.Sleep(wait)
				err := b.Cancel(t.Context(), m, time.Now())
				if err != nil && !errors.Is(err, ErrReleased) && !errors.Is(err, ErrNotFound) {
					t.Errorf("Cancel() = %v", err)
				}
				mu.Lock()
				cancelled[m.ID] = err == nil
				mu.Unlock()
			})
		}
	}
	all.Wait()
	taken := 0
	for _, yes := range cancelled {
		if yes {
			taken++
		}
	}
	world.Eventually(t, "all are released or cancelled", func() bool {
		return b.count(t, "outbox_messages") == n-taken && b.count(t, "scheduled_messages") == taken && b.count(t, "schedule_slots") == 0
	})
	events := b.readOutbox(t)
	for _, m := range ms {
		if e, out := events[m.ID]; out == cancelled[m.ID] || out && string(e.Payload) != string(m.Payload) {
			t.Errorf("message %s: cancelled %t, in the outbox %t: %+v", m.ID, cancelled[m.ID], out, e)
		}
	}
	t.Logf("%d of %d cancelled", taken, n)
}
