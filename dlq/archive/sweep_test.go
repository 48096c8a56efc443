package archive

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a store on a node in memory, an archive in a folder and a sweeper,
// by one clock.
type fixture struct {
	*testing.T
	database world.World
	store    *dlq.Store
	archive  *Archive
	conf     Config
	sweeper  *Sweeper
	now      atomic.Int64 // Unix milliseconds
}

func setup(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	b := &fixture{T: t}
	// Tests let months pass, and the database takes no write times of the future.
	b.now.Store(time.Now().AddDate(-2, 0, 0).UnixMilli())
	clock := world.Clock(func() time.Time { return at(b.now.Load()) })
	b.database = world.Start(t)
	var err error
	if b.store, err = dlq.Open(b.database.Session, schema.DefaultKeyspace, dlq.WithClock(clock),
		dlq.WithTimeouts(30*time.Second, time.Minute)); err != nil {
		t.Fatal(err)
	}
	b.archive, _ = openDir(t)
	b.archive.clock = clock
	b.conf = Config{Store: b.store, Archive: b.archive, Owner: "test", Rate: 1e6, Registerer: prometheus.NewRegistry()}
	if change != nil {
		change(&b.conf)
	}
	if b.sweeper, err = NewSweeper(b.conf); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *fixture) advance(d time.Duration) { b.now.Add(d.Milliseconds()) }

func (b *fixture) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// write stores a dead letter of an aggregate with a status.
func (b *fixture) write(aggregate string, seq int64, to dlq.Status) gocql.UUID {
	b.Helper()
	ctx := b.Context()
	l := awkward()
	l.AggregateID, l.Sequence, l.Status, l.Unblocked, l.Outcome, l.ResolvedAt, l.Replays, l.EditedID, l.Edit = aggregate, seq, dlq.Pending, false, dlq.Outcome{}, time.Time{}, 0, gocql.UUID{}, nil
	l.FirstFailedAt, l.LastFailedAt = at(b.now.Load()), at(b.now.Load())
	if to == dlq.Blocked || to == dlq.Suspended {
		l.Status = to
	}
	_, err := b.store.Write(ctx, l)
	b.must(err)
	switch to {
	case dlq.Resolved:
		b.resolve(l.EventID)
	case dlq.Failed:
		for range dlq.DefaultMaxReplays {
			_, err := b.store.Claim(ctx, l.EventID, "relay", time.Minute)
			b.must(err)
			_, err = b.store.Fail(ctx, l.EventID, "relay", dlq.Failure{Class: "attempts_used"})
			b.must(err)
		}
	}
	if got := b.read(l.EventID).Status; got != to {
		b.Fatalf("the test's dead letter is %s, want %s", got, to)
	}
	return l.EventID
}

func (b *fixture) resolve(id gocql.UUID) {
	b.Helper()
	b.must(b.store.ResolveByHand(b.Context(), id, dlq.Actor{Name: "eve", Reason: "done"}))
}

func (b *fixture) read(id gocql.UUID) dlq.DeadLetter {
	b.Helper()
	l, err := b.store.Read(b.Context(), id)
	b.must(err)
	return l
}

func (b *fixture) sweep() dlq.Swept {
	b.Helper()
	r, err := b.sweeper.Sweep(b.Context())
	b.must(err)
	return r
}

func TestSweeper_MovesWhatIsOldAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	resolved := []gocql.UUID{b.write("a", 1, dlq.Resolved), b.write("b", 1, dlq.Resolved)}
	late := b.write("c", 1, dlq.Pending)
	failed := b.write("d", 1, dlq.Failed)
	head := b.write("e", 1, dlq.Failed)
	stay := []gocql.UUID{head, b.write("e", 2, dlq.Blocked), b.write("f", 1, dlq.Pending), b.write("g", 1, dlq.Suspended)}
	before := b.read(resolved[0])

	b.advance(DefaultResolved - time.Minute)
	b.resolve(late) // it failed long ago, and is resolved now
	if r := b.sweep(); len(r.Objects) != 0 {
		t.Fatalf("a sweep too early: %+v", r)
	}
	b.advance(2 * time.Minute)
	r := b.sweep()
	if r.Archived[dlq.Resolved] != 2 || r.Archived[dlq.Failed] != 0 || len(r.Objects) != 1 {
		t.Fatalf("after 30 days: %+v", r)
	}
	b.advance(DefaultFailed)
	r = b.sweep()
	if r.Archived[dlq.Resolved] != 1 || r.Archived[dlq.Failed] != 1 || r.Held != 1 || len(r.Objects) != 2 {
		t.Fatalf("after 120 days: %+v", r)
	}
	for _, id := range append(resolved, late, failed) {
		l := b.read(id)
		if l.Status != dlq.Archived || l.PurgedAt.IsZero() || l.Payload != nil {
			t.Errorf("%s is %s, purged %s, payload %q", id, l.Status, l.PurgedAt, l.Payload)
		}
		rec, err := b.archive.DeadLetter(t.Context(), l.Archive, id)
		if err != nil || len(rec.History) < 2 {
			t.Errorf("%s in %s: %+v, %v", id, l.Archive, rec, err)
		}
	}
	for _, id := range stay {
		if l := b.read(id); !l.Status.Open() || l.Payload == nil {
			t.Errorf("a %s dead letter was touched: %+v", l.Status, l)
		}
	}
	if r := b.sweep(); len(r.Objects) != 0 || r.Held != 1 {
		t.Errorf("sweeping again: %+v", r)
	}

	// And back.
	rec, err := b.archive.DeadLetter(t.Context(), b.read(resolved[0]).Archive, resolved[0])
	b.must(err)
	c, err := rec.Copy()
	b.must(err)
	b.must(b.store.Restore(t.Context(), resolved[0], &c, dlq.Actor{Name: "eve"}))
	after := b.read(resolved[0])
	after.Version = before.Version
	if !reflect.DeepEqual(after, before) {
		t.Errorf("restored\n%+v\nwant\n%+v", after, before)
	}
}

// A dead letter whose object is missing or incorrect is not removed.
func TestSweeper_RemovesNothingThatIsNotInTheArchive(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.write("a", 1, dlq.Resolved)
	before := b.read(id)
	b.advance(2 * DefaultResolved)
	b.archive.stored = func(key string) { // the object disappears
		_ = b.archive.bucket.Delete(t.Context(), key) // a failure shows below
	}
	if r, err := b.sweeper.Sweep(t.Context()); err == nil {
		t.Fatalf("Once() without a disk = %+v", r)
	}
	if after := b.read(id); !reflect.DeepEqual(after, before) {
		t.Errorf("the dead letter is %+v", after)
	}
	b.archive.stored = nil
	if r := b.sweep(); r.Archived[dlq.Resolved] != 1 {
		t.Errorf("with a disk: %+v", r)
	}
}

func TestSweeper_ChangedMeanwhileStays(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.write("a", 1, dlq.Failed)
	b.advance(2 * DefaultFailed)
	b.archive.stored = func(key string) {
		if strings.HasSuffix(key, manifestSuffix) { // written, not yet removed
			b.must(b.store.Replay(t.Context(), id, dlq.Actor{Name: "eve"}))
		}
	}
	if r := b.sweep(); r.Changed != 1 || len(r.Archived) != 0 {
		t.Errorf("%+v", r)
	}
	if l := b.read(id); l.Status != dlq.Pending || l.Payload == nil {
		t.Errorf("the dead letter is %+v", l)
	}
}

func TestSweeper_ContinuesAfterACrash(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var ids []gocql.UUID
	for range 5 {
		ids = append(ids, b.write("a", 1, dlq.Resolved))
	}
	b.advance(2 * DefaultResolved)
	// Two dead letters are removed; then the database stops responding, and the process
	// crashes.
	life, die := context.WithCancel(t.Context())
	defer die()
	asked := 0
	rule := b.database.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Table: "dead_letter_queue", Kinds: []engine.OpKind{engine.OpCAS}, Func: func(engine.Op) bool {
			if asked++; asked == 4 {
				die()
			}
			return true
		}},
		Skip: 2, Effect: faults.Effect{Failure: faults.Unavailable(2, 1)},
	})
	if r, err := b.sweeper.Sweep(life); err == nil || r.Archived[dlq.Resolved] != 2 {
		t.Fatalf("Once() = %+v, %v", r, err)
	}
	b.database.Node.Faults().Remove(rule)
	if r := b.sweep(); r.Archived[dlq.Resolved] != 3 {
		t.Errorf("the next sweep: %+v", r)
	}
	for _, id := range ids {
		if l := b.read(id); l.PurgedAt.IsZero() {
			t.Errorf("%s stays", id)
		} else if _, err := b.archive.DeadLetter(t.Context(), l.Archive, id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestSweeper_ExpiresObjectsAndOutlines(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ttl    time.Duration
		forget bool
	}{"rows live a week": {7 * 24 * time.Hour, true}, "rows live for good": {0, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *Config) {
				c.Tables = &testTables{ttl: tt.ttl}
			})
			id := b.write("a", 1, dlq.Resolved)
			b.advance(DefaultResolved + time.Minute)
			object := b.sweep().Objects[0]
			b.advance(DefaultKeep - time.Minute)
			if r := b.sweep(); len(r.Expired) != 0 || r.Forgotten != 0 {
				t.Fatalf("too early: %+v", r)
			}
			b.advance(2 * time.Minute)
			r := b.sweep()
			if len(r.Expired) != 1 || r.Expired[0] != object || (r.Forgotten == 1) != tt.forget {
				t.Fatalf("after a year: %+v", r)
			}
			if _, err := b.archive.Manifest(t.Context(), object); !errors.Is(err, ErrNotFound) {
				t.Errorf("the object is there: %v", err)
			}
			if _, err := b.store.Read(t.Context(), id); errors.Is(err, dlq.ErrNotFound) != tt.forget {
				t.Errorf("the outline: %v", err)
			}
		})
	}
}

func TestSweeper_OneAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	other, err := b.store.Duty(dutyName, "other", time.Hour)
	b.must(err)
	if ok, err := other.Take(t.Context()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := b.sweeper.Sweep(t.Context()); !errors.Is(err, dlq.ErrBusy) {
		t.Errorf("Once() = %v, want ErrBusy", err)
	}
	b.must(other.Leave(t.Context()))
	b.sweep()
}

func TestSweeper_RunSweepsAndStops(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.write("a", 1, dlq.Resolved)
	b.advance(2 * DefaultResolved)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.sweeper.Run(ctx) }()
	deadline := time.Now().Add(5 * time.Minute)
	for b.read(id).PurgedAt.IsZero() {
		if time.Now().After(deadline) {
			t.Fatal("Run() does not sweep")
		}
		time.Sleep(5 * time.Millisecond) // polls to the deadline
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v", err)
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	a, _ := openDir(t)
	good := Config{Store: &dlq.Store{}, Archive: a, Owner: "x"}
	if _, err := NewSweeper(good); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(*Config){
		"resolved": func(c *Config) { c.Resolved = time.Minute }, "failed": func(c *Config) { c.Failed = -2 }, "keep": func(c *Config) { c.Keep = time.Second },
		"interval": func(c *Config) { c.Interval = time.Millisecond }, "rate": func(c *Config) { c.Rate = -1 }, "store": func(c *Config) { c.Store = nil },
	} {
		c := good
		f(&c)
		if _, err := NewSweeper(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
