package schedule

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A slot that was removed by a process with a fast clock exists again after it
// is written again.
func TestClocks_SlotIsWrittenAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	clock := new(scyllatest.Clock)
	clock.Set(2 * time.Minute)
	ahead := NewStore(clock.Connect(t, b.Node), gocql.LocalQuorum, 30*time.Second)
	m := message(time.Now().Add(time.Hour))
	x := slot{bucket: bucketAt(m.DeliverAt), at: m.DeliverAt, id: m.ID, topic: m.Topic}
	for i, step := range []func() error{
		func() error { return ahead.putSlot(t.Context(), x) },
		func() error { return b.dropSlots(t.Context(), x) },
		func() error { return b.putSlot(t.Context(), x) },
		func() error { return ahead.dropSlots(t.Context(), x) },
		func() error { return b.putSlot(t.Context(), x) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := b.Session.Query("SELECT COUNT(*) FROM schedule_slots").Scan(&n); err != nil || n != (i+1)%2 {
			t.Errorf("after step %d there are %d slots, %v, want %d", i, n, err, (i+1)%2)
		}
	}
}

// A message is removed although the clock of the server that decided its release
// is ahead of the scheduler's.
func TestClocks_ReleasedMessageIsRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	m := message(now.Add(-time.Second))
	b.put(t, now.Add(-time.Minute), m)
	b.Node.Faults().Clock().SetSkew(time.Minute)
	if err := b.scheduler(t).releaseOne(t.Context(), m.slot()); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, "scheduled_messages"); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	if n := b.count(t, "outbox_messages"); n != 1 {
		t.Errorf("%d messages are in the outbox", n)
	}
}

// A message whose release was decided before the first generation of the outbox table gets the
// time of the database.
func TestClocks_ReleasedBeforeTheFirstGeneration(t *testing.T) {
	t.Parallel()
	scyllatest.EachVersion(t, func(t *testing.T, conf scyllafake.Config) {
		b := &fixture{World: world.StartOn(t, conf)}
		b.Store = NewStore(b.Session, gocql.LocalQuorum, 30*time.Second)
		now := time.Now()
		m := message(now.Add(-2 * time.Minute))
		b.put(t, now.Add(-3*time.Minute), m)
		behind := b.scheduler(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(-time.Minute) } })
		if err := behind.releaseOne(t.Context(), m.slot()); err != nil {
			t.Fatal(err)
		}
		if n := b.count(t, "outbox_messages"); n != 1 {
			t.Errorf("%d messages are in the outbox", n)
		}
	})
}

// The clock of a scheduler is ahead of that of this host: the event of a message that is due by
// it is not for a time that the relay would refuse or wait for.
func TestClocks_ReleasedByAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, time.Minute, time.Hour} {
		b := setup(t)
		m := message(time.Now().Add(ahead))
		b.put(t, time.Now(), m)
		fast := b.scheduler(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(ahead) } })
		if err := fast.releaseOne(t.Context(), m.slot()); err != nil {
			t.Fatal(err)
		}
		var at time.Time
		if err := b.Session.Query("SELECT deliver_at FROM outbox_messages WHERE aggregate_id = ?", m.ID.String()).Scan(&at); err != nil {
			t.Fatal(err)
		}
		if ahead == 0 && !at.Equal(m.DeliverAt) || ahead > 0 && !at.IsZero() {
			t.Errorf("%s ahead: the event is for %s", ahead, at)
		}
	}
}

// The clock of a scheduler's host is hours ahead. By the database's clock nothing is due, and no
// minute is closed.
func TestClocks_AClockThatIsAheadClosesNoMinute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	at := now.Add(30 * time.Minute)
	first, second, slow := message(at), message(at.Add(time.Millisecond)), message(at.Add(time.Second))
	b.put(t, now, first)
	if err := b.putSlot(t.Context(), slow.slot()); err != nil { // the other half of its batch comes later
		t.Fatal(err)
	}
	fast := b.scheduler(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(2 * time.Hour) } })
	if err := fast.measureClock(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Message{first, slow} {
		if err := fast.releaseOne(t.Context(), m.slot()); err != nil {
			t.Fatal(err)
		}
	}
	bucket := bucketAt(at)
	if n := b.count(t, "schedule_slots"); n != 2 {
		t.Errorf("%d slots, want those of the two messages", n)
	}
	if err := b.dropSlots(t.Context(), first.slot(), slow.slot()); err != nil {
		t.Fatal(err)
	}
	if err := fast.scanBucket(t.Context(), bucket, Position{DeliverAt: bucket}, bucket.Add(bucketSize-time.Millisecond), fast.clock.Now()); err != nil {
		t.Fatal(err)
	}
	b.put(t, time.Now(), second)
	found, err := b.buckets(t.Context(), bucket, bucket.Add(bucketSize), 10)
	if err != nil || len(found) != 1 {
		t.Errorf("the minute of a message is not listed: %v, %v", found, err)
	}
}
