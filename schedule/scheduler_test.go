package schedule

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func TestScheduler_ReleasesWhatIsDueAndNothingEarly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	world.Run(t, b.scheduler(t).Run)
	now := time.Now()
	var ms []*Message
	for i := range 60 {
		ms = append(ms, message(now.Add(time.Duration(i)*25*time.Millisecond)))
	}
	later := message(now.Add(time.Hour))
	b.put(t, now, append(ms, later)...)
	world.Eventually(t, "60 messages are released", func() bool { return b.count(t, "outbox_messages") == len(ms) })
	events := b.readOutbox(t)
	for _, m := range ms {
		e, ok := events[m.ID]
		if !ok {
			t.Fatalf("message %s is not in the outbox", m.ID)
		}
		if e.At.Before(m.DeliverAt) {
			t.Errorf("message for %s was written at %s", m.DeliverAt, e.At)
		}
		if e.Type != m.Topic || string(e.Key()) != m.Key || string(e.Payload) != string(m.Payload) || e.ContentType != m.ContentType ||
			e.Headers["a"] != "b" || !e.CreatedAt.Equal(m.CreatedAt) || !e.DeliverAt.Equal(m.DeliverAt) || e.AggregateID.UUID() != m.ID || e.Sequence != 1 {
			t.Errorf("event %+v of message %+v", e.Event, m)
		}
	}
	world.Eventually(t, "released messages are removed", func() bool {
		return b.count(t, "scheduled_messages") == 1 && b.count(t, "schedule_slots") == 1
	})
	if m, err := b.Read(t.Context(), later.ID); err != nil || m.State != Waiting {
		t.Errorf("Read() of the later one = %+v, %v", m, err)
	}
}

func TestScheduler_AYearAheadAndLongAfter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	year := message(now.Add(200 * time.Millisecond))
	b.put(t, now.Add(-MaxAhead+time.Second), year)
	// Due for a year, because no scheduler ran.
	old := message(now.Add(-365 * 24 * time.Hour))
	b.put(t, now.Add(-366*24*time.Hour), old)
	if err := b.Put(t.Context(), message(now.Add(MaxAhead+time.Second)), now); !errors.As(err, new(*TooFarError)) {
		t.Errorf("Put() further ahead than MaxAhead = %v", err)
	}
	// A minute whose messages were delivered while no scheduler ran.
	used := bucketAt(now.Add(-100 * 24 * time.Hour))
	if err := b.Session.Query("INSERT INTO schedule_buckets (month, bucket) VALUES (?, ?) USING TIMESTAMP ?", monthAt(used), used, used.UnixMicro()).Exec(); err != nil {
		t.Fatal(err)
	}
	world.Run(t, b.scheduler(t).Run)
	world.Eventually(t, "both are released", func() bool { return b.count(t, "outbox_messages") == 2 })
	// The other two were written just now: more rows may become visible.
	world.Eventually(t, "the minute without messages is closed", func() bool { return b.count(t, "schedule_buckets") == 2 })
}

func TestScheduler_AfterAnOutageInOrderWithLittleMemory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	b, rnd := setup(t), seeds.Rand(t)
	now := time.Now()
	var ms []*Message
	for range 300 { // many of one time, over several minutes
		ms = append(ms, message(now.Add(-time.Duration(1+rnd.IntN(5))*time.Minute)))
	}
	b.put(t, now.Add(-time.Hour), ms...)
	s := b.scheduler(t, func(c *Config) { c.MaxPending, c.Concurrency = shards, 1 })
	most := 0
	s.cfg.Committed = func(outbox.ID) {
		s.mu.Lock()
		most = max(most, len(s.known))
		s.mu.Unlock()
	}
	stop := world.Run(t, s.Run)
	world.Eventually(t, "all are released", func() bool { return b.count(t, "outbox_messages") == len(ms) })
	stop()
	if most > shards {
		t.Errorf("%d messages were in memory, want at most %d", most, shards)
	}
	events := b.readOutbox(t)
	for _, x := range ms {
		for _, y := range ms {
			if x.DeliverAt.Before(y.DeliverAt) && events[y.ID].At.Before(events[x.ID].At) {
				t.Fatalf("the message for %s went out before that for %s", y.DeliverAt, x.DeliverAt)
			}
		}
	}
}

// A message that was cancelled with success is never published; one that was
// cancelled too late always is. Schedulers race with each other, too, with and
// without a lease.
func TestScheduler_CancellationsRace(t *testing.T) {
	t.Parallel()
	b, r := setup(t), seeds.Rand(t)
	one, two := b.scheduler(t), b.scheduler(t)
	for _, s := range []*Scheduler{one, two} {
		s.leaseUntil = time.Now().Add(time.Hour)
	}
	const n = 150
	cancelled := map[gocql.UUID]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		m := message(time.Now().Add(-time.Second))
		b.put(t, time.Now().Add(-time.Minute), m)
		x := slot{bucket: bucketAt(m.DeliverAt), at: m.DeliverAt, id: m.ID}
		for _, s := range []*Scheduler{one, two} {
			wait := time.Duration(r.IntN(2000)) * time.Microsecond
			all.Go(func() {
				time.Sleep(wait)
				if err := s.releaseOne(context.Background(), x); err != nil {
					t.Errorf("release() = %v", err)
				}
			})
		}
		wait := time.Duration(r.IntN(2000)) * time.Microsecond
		all.Go(func() {
			time.Sleep(wait)
			err := b.Cancel(context.Background(), m, time.Now())
			if err != nil && !errors.Is(err, ErrReleased) && !errors.Is(err, ErrNotFound) {
				t.Errorf("Cancel() = %v", err)
			}
			mu.Lock()
			cancelled[m.ID] = err == nil
			mu.Unlock()
		})
	}
	all.Wait()
	events := b.readOutbox(t)
	taken := 0
	for id, yes := range cancelled {
		if yes {
			taken++
		}
		if _, out := events[id]; out == yes {
			t.Errorf("message %s: cancelled %t, in the outbox %t", id, yes, out)
		}
	}
	t.Logf("%d of %d cancelled", taken, n)
}

func TestStore_WritingAgainRevivesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	gone, out := message(now.Add(time.Hour)), message(now)
	b.put(t, now, gone, out)
	if err := b.Cancel(t.Context(), gone, now); err != nil {
		t.Fatal(err)
	}
	s := b.scheduler(t)
	s.leaseUntil = now.Add(time.Hour)
	if err := s.releaseOne(t.Context(), slot{bucket: bucketAt(out.DeliverAt), at: out.DeliverAt, id: out.ID}); err != nil {
		t.Fatal(err)
	}
	b.put(t, now, gone, out)
	if m, err := b.Read(t.Context(), gone.ID); err != nil || m.State != Cancelled || m.Payload != nil || m.Topic != gone.Topic {
		t.Errorf("Read() of the cancelled one = %+v, %v", m, err)
	}
	if m, err := b.Read(t.Context(), out.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("Read() of the delivered one = %+v, %v", m, err)
	}
	if err := b.Cancel(t.Context(), gone, now); err != nil {
		t.Errorf("Cancel() again = %v", err)
	}
	if err := b.Cancel(t.Context(), out, now); !errors.Is(err, ErrNotFound) {
		t.Errorf("Cancel() of the delivered one = %v", err)
	}
}

// A release is cut off at each of its writes, with the write executed, omitted,
// or decided but invisible, and the scheduler fails. Another scheduler takes
// over.
func TestScheduler_CutOffAtAnyStep(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]engine.Fate{"lost": engine.FateNormal, "carried out": engine.FateApply, "decided": engine.FateDecided} {
		for step := range int32(4) { // released, written to the outbox, removed, without a slot
			counted := []engine.OpKind{engine.OpCAS, engine.OpWrite, engine.OpUnloggedBatch, engine.OpLoggedBatch}
			if fate == engine.FateDecided {
				if counted = counted[:1]; step > 0 {
					continue // one is conditional
				}
			}
			t.Run(fmt.Sprintf("%s at write %d", name, step), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				now := time.Now()
				m := message(now.Add(-time.Second))
				b.put(t, now.Add(-time.Minute), m)
				var writes atomic.Int32
				kinds := []engine.OpKind{engine.OpCAS, engine.OpWrite, engine.OpUnloggedBatch, engine.OpLoggedBatch}
				b.Node.Faults().MustAdd(faults.Rule{
					Match:  faults.Match{Kinds: counted, Func: func(engine.Op) bool { return writes.Add(1) == step+1 }},
					Effect: faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1), Fate: fate},
				})
				b.Node.Faults().MustAdd(faults.Rule{
					Match:  faults.Match{Kinds: kinds, Func: func(engine.Op) bool { return writes.Load() >= step+1 }},
					Effect: faults.Effect{Failure: faults.Unavailable(0, 1)},
				})
				first := b.scheduler(t)
				first.leaseUntil = now.Add(time.Hour)
				err := first.releaseOne(t.Context(), slot{bucket: bucketAt(m.DeliverAt), at: m.DeliverAt, id: m.ID})
				if err == nil {
					t.Fatal("release() = nil although a write failed")
				}
				if writes.Load() < step+1 {
					t.Fatalf("only %d writes were made", writes.Load())
				}
				b.Node.Faults().Clear()
				world.Run(t, b.scheduler(t).Run)
				world.Eventually(t, "another scheduler completes it", func() bool {
					return b.count(t, "outbox_messages") == 1 && b.count(t, "scheduled_messages") == 0
				})
				if e := b.readOutbox(t)[m.ID]; string(e.Payload) != string(m.Payload) {
					t.Errorf("event %+v", e)
				}
			})
		}
	}
}

// A successor resumes a release that was cut off seconds ago: with the first
// write time the row would be older than the range that the relay's tail reader
// reads.
func TestScheduler_CutOffSecondsAgo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	m := message(now.Add(-time.Hour))
	b.put(t, now.Add(-2*time.Hour), m)
	if won, err := b.release(t.Context(), m, now.Add(-2*handFresh)); err != nil || !won {
		t.Fatalf("release() = %t, %v", won, err)
	}
	if err := b.Cancel(t.Context(), m, now); !errors.Is(err, ErrReleased) {
		t.Errorf("Cancel() of a released message = %v", err)
	}
	world.Run(t, b.scheduler(t).Run)
	world.Eventually(t, "the message is released", func() bool { return b.count(t, "outbox_messages") == 1 })
	if at := b.readOutbox(t)[m.ID].At; at.Before(now) {
		t.Errorf("its event was written at %s, before the release was resumed at %s", at, now)
	}
}

// A release that was cut off is resumed, and its new write time is decided with
// a lost response. That decision, whose writer has failed, refuses the next
// attempt: the message must not be forgotten.
func TestScheduler_CutOffAndAgainWhileItIsTakenUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	m := message(now.Add(-time.Hour))
	b.put(t, now.Add(-2*time.Hour), m)
	if won, err := b.release(t.Context(), m, now.Add(-2*handFresh)); err != nil || !won {
		t.Fatalf("release() = %t, %v", won, err)
	}
	b.Node.Faults().MustAdd(faults.CASTimeout(true))
	s := b.scheduler(t)
	x := slot{bucket: bucketAt(m.DeliverAt), at: m.DeliverAt, id: m.ID}
	if err := s.releaseOne(t.Context(), x); err == nil {
		t.Fatal("release() = nil although the answer was lost")
	}
	if err := s.releaseOne(t.Context(), x); err != nil {
		t.Errorf("release() again = %v", err)
	}
	world.Run(t, b.scheduler(t).Run)
	world.Eventually(t, "it is no longer in memory", func() bool { return b.count(t, "scheduled_messages") == 0 })
	if e := b.readOutbox(t)[m.ID]; string(e.Payload) != string(m.Payload) {
		t.Errorf("event %+v, want that of the message", e)
	}
}

func TestStore_ListsByTimeInPages(t *testing.T) {
	t.Parallel()
	b, rnd := setup(t), seeds.Rand(t)
	now := time.Now().UTC().Truncate(time.Minute)
	want, keyed := map[gocql.UUID]bool{}, map[gocql.UUID]bool{}
	for i := range 120 {
		m := message(now.Add(time.Hour)) // a crowd at one moment
		m.Key = fmt.Sprintf("customer-%d", i%4)
		if i%3 == 0 {
			m.DeliverAt = now.Add(time.Duration(rnd.IntN(60*24)) * time.Hour)
		}
		if i%5 == 0 {
			m.Topic = "others"
		}
		if i == 7 {
			m.ID = outbox.NameID(m.ID, "another version of uuid").UUID()
		}
		b.put(t, now, m)
		if i%10 == 1 {
			if err := b.Cancel(t.Context(), m, now); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if m.Topic == "reminders" && m.DeliverAt.Before(now.Add(30*24*time.Hour)) {
			want[m.ID] = true
			if m.Key == "customer-2" {
				keyed[m.ID] = true
			}
		}
	}
	for _, key := range []string{"", "customer-2"} {
		want := want
		if key != "" {
			want = keyed
		}
		for _, limit := range []int{1, 7, 1000} {
			seen := map[gocql.UUID]bool{}
			last := time.Time{}
			after, more := Position{DeliverAt: now}, true
			for pages := 0; more; pages++ {
				if pages == 5000 {
					t.Fatalf("key %q, limit %d: the list has no end", key, limit)
				}
				var page []Message
				var err error
				page, after, more, err = b.List(t.Context(), after, Filter{Until: now.Add(30 * 24 * time.Hour), Topic: "reminders", Key: key}, limit)
				if err != nil || len(page) > limit {
					t.Fatalf("List() = %d, %v", len(page), err)
				}
				for _, m := range page {
					if seen[m.ID] || !want[m.ID] || m.DeliverAt.Before(last) {
						t.Fatalf("key %q, limit %d: message %s for %s: seen %t, wanted %t, after %s", key, limit, m.ID, m.DeliverAt, seen[m.ID], want[m.ID], last)
					}
					seen[m.ID], last = true, m.DeliverAt
				}
			}
			if len(seen) != len(want) || len(want) == 0 {
				t.Errorf("key %q, limit %d: listed %d, want %d", key, limit, len(seen), len(want))
			}
		}
	}
}

func TestScheduler_AnotherTakesOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.scheduler(t), b.scheduler(t)
	stop := world.Run(t, one.Run)
	world.Eventually(t, "the first has the lease", one.working)
	world.Run(t, two.Run)
	m := message(time.Now())
	b.put(t, time.Now(), m)
	world.Eventually(t, "the first releases", func() bool { return b.count(t, "outbox_messages") == 1 })
	if two.working() {
		t.Error("both have the lease")
	}
	stop()
	world.Eventually(t, "the second has the lease", two.working)
	b.put(t, time.Now(), message(time.Now()))
	world.Eventually(t, "the second releases", func() bool { return b.count(t, "outbox_messages") == 2 })
}

// A scheduler that acquires the lease while it still drops its pending messages
// reports that it works.
func TestScheduler_ShowsThatItWorks(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := setup(t).scheduler(t, func(c *Config) { c.Registerer = reg })
	if got := gauge(t, reg, "outbox_schedule_working"); got != 0 {
		t.Errorf("without the lease outbox_schedule_working is %v", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.keepLease(ctx)
	}()
	world.Eventually(t, "it has the lease", func() bool { return s.working() && gauge(t, reg, "outbox_schedule_working") == 1 })
	s.dropPending()
	if got := gauge(t, reg, "outbox_schedule_working"); got != 1 {
		t.Errorf("with the lease outbox_schedule_working is %v", got)
	}
	stop()
	<-ended
	if got := gauge(t, reg, "outbox_schedule_working"); got != 0 {
		t.Errorf("after it released the lease outbox_schedule_working is %v", got)
	}
}

// The lease is not needed for correctness: schedulers that all assume to hold
// it release each message once.
func TestScheduler_ManyAtOnceReleaseEachOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	due := map[gocql.UUID]*Message{}
	for i := range 200 { // half of it overdue, half due while they run
		m := message(now.Add(time.Duration(i-100) * 5 * time.Millisecond))
		due[m.ID] = m
		b.put(t, now.Add(-time.Minute), m)
	}
	var released atomic.Int32
	for range 4 {
		s := b.scheduler(t, func(c *Config) { c.Committed = func(outbox.ID) { released.Add(1) } })
		s.leaseUntil = now.Add(time.Hour)
		world.Run(t, s.Run)
	}
	world.Eventually(t, "all are released and removed", func() bool {
		return b.count(t, "outbox_messages") == len(due) && b.count(t, "scheduled_messages") == 0 && b.count(t, "schedule_slots") == 0
	})
	for id, e := range b.readOutbox(t) { // which fails if one is in the log at two times
		if due[id] == nil || e.At.Before(due[id].DeliverAt) {
			t.Errorf("event %s was written at %s, for %+v", id, e.At, due[id])
		}
	}
	t.Logf("%d of %d were handed over, some by several at once", released.Load(), len(due))
}

// Waiting messages are neither read nor kept in memory.
func TestScheduler_WhatWaitsIsNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	waiting := 2000
	if n, err := strconv.Atoi(os.Getenv("SCHEDULE_WAITING")); err == nil {
		waiting = n
	}
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(64)
	spread := 365 * 24 * time.Hour / time.Duration(waiting)
	for i := range waiting {
		g.Go(func() error {
			return b.Put(ctx, message(now.Add(2*time.Hour+time.Duration(i)*spread)), now)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	read := b.Node.Faults().MustAdd(faults.Rule{
		Match:  faults.Match{Kinds: []engine.OpKind{engine.OpRead}, Func: func(o engine.Op) bool { return o.Table == "scheduled_messages" }},
		Effect: faults.Effect{Delay: time.Nanosecond},
	})
	s := b.scheduler(t, func(c *Config) { c.LookAhead = time.Second })
	world.Run(t, s.Run)
	world.Eventually(t, "it has the lease", s.working)
	var ms []*Message
	for range 10 {
		m := message(time.Now().Add(50 * time.Millisecond))
		ms = append(ms, m)
		b.put(t, time.Now(), m)
		world.Eventually(t, "the message is released", func() bool { return b.count(t, "outbox_messages") == len(ms) })
	}
	s.mu.Lock()
	known := len(s.known)
	s.mu.Unlock()
	if known > len(ms) {
		t.Errorf("%d messages are in memory, %d are waiting", known, waiting)
	}
	// A slot may be read once more during the release of its message.
	if n := b.Node.Faults().Hits(read); n < len(ms) || n > waiting/10 {
		t.Errorf("%d messages were read to release %d of %d", n, len(ms), waiting)
	}
	if n := b.count(t, "scheduled_messages"); n < waiting {
		t.Errorf("%d messages are waiting, want %d", n, waiting)
	}
}

// A message was cancelled two hours ago, its row was not marked, and a retry of its writer has
// written its slot since then. One scheduler completes the cancellation when the message is due;
// another one has read the message before. It is not published.
func TestScheduler_CompletedCancellationIsNotUndone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	m := message(now.Add(-time.Second))
	m.CreatedAt = m.CreatedAt.Add(-3 * time.Hour)
	x, cancelled := m.slot(), now.Add(-2*time.Hour)
	b.put(t, now.Add(-time.Minute), m)
	if err := b.Session.Query("UPDATE schedule_slots USING TIMESTAMP ? SET state = 'cancelled', changed_at = ?"+slotKey,
		append([]any{cancelled.UnixMicro(), cancelled.UnixMilli()}, x.key()...)...).Exec(); err != nil {
		t.Fatal(err)
	}
	read, err := b.readRow(t.Context(), m.ID, b.cons)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.scheduler(t).releaseOne(t.Context(), slot{bucket: x.bucket, at: x.at, id: x.id, topic: x.topic, changed: true}); err != nil {
		t.Fatalf("release() of the one = %v", err)
	}
	if hand, err := b.scheduler(t).decide(t.Context(), &dueMessage{x, read}, now); hand || err != nil {
		t.Errorf("decide() of the other = %t, %v, want it not to be published", hand, err)
	}
	if n := b.count(t, "schedule_slots"); n != 0 {
		t.Errorf("%d slots are left", n)
	}
	if got, err := b.Read(t.Context(), m.ID); err != nil || got.State != Cancelled || !got.ChangedAt.Equal(cancelled.UTC().Truncate(time.Millisecond)) {
		t.Errorf("Read() = %+v, %v, want it cancelled at %s", got, err, cancelled)
	}
}
