package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

var eve = dlq.Actor{Name: "eve", Reason: "done"}

func withoutArchive(c *Config) { c.Archive = nil }

// Without an archive, dead letters are deleted at the end of their retention, except for
// their outlines.
func TestSweeper_DeletesWithoutAnArchive(t *testing.T) {
	t.Parallel()
	b := setup(t, withoutArchive)
	resolved, failed, head := b.write("a", 1, dlq.Resolved), b.write("b", 1, dlq.Failed), b.write("c", 1, dlq.Failed)
	stay := []gocql.UUID{head, b.write("c", 2, dlq.Blocked), b.write("d", 1, dlq.Pending), b.write("e", 1, dlq.Suspended)}
	b.advance(DefaultResolved - time.Minute)
	if r := b.sweep(); len(r.Archived) != 0 {
		t.Fatalf("too early: %+v", r)
	}
	b.advance(2 * time.Minute)
	plan, _, err := b.sweeper.Plan(t.Context())
	b.must(err)
	if r := b.sweep(); r.Archived[dlq.Resolved] != 1 || r.Archived[dlq.Failed] != 0 || len(r.Objects) != 0 || plan.Archived[dlq.Resolved] != 1 {
		t.Fatalf("after 30 days: %+v, plan %+v", r, plan)
	}
	b.advance(DefaultFailed)
	if r := b.sweep(); r.Archived[dlq.Failed] != 1 || r.Held != 1 {
		t.Fatalf("after 120 days: %+v", r)
	}
	for _, id := range []gocql.UUID{resolved, failed} {
		l := b.read(id)
		if l.Status != dlq.Archived || l.PurgedAt.IsZero() || l.Payload != nil || l.Archive != "" {
			t.Errorf("%s is %s, purged %s, payload %q in %q", id, l.Status, l.PurgedAt, l.Payload, l.Archive)
		}
		h, err := b.store.History(t.Context(), id)
		if err != nil || len(h) != 1 || h[0].By != "retention" {
			t.Errorf("history %+v, %v", h, err)
		}
		if st, err := b.store.Write(t.Context(), &dlq.DeadLetter{Table: l.Table, EventID: id, AggregateID: l.AggregateID}); err != nil || st != dlq.Archived {
			t.Errorf("Write() of the event again = %s, %v, want the outline", st, err)
		}
		var refused *dlq.RefusedError
		if err := b.store.Restore(t.Context(), id, nil, eve); !errors.As(err, &refused) {
			t.Errorf("Restore() without a copy = %v, want it refused", err)
		}
	}
	for _, id := range stay {
		if l := b.read(id); !l.Status.Open() || l.Payload == nil {
			t.Errorf("a %s dead letter was touched: %+v", l.Status, l)
		}
	}
	if n := testutil.ToFloat64(b.sweeper.metrics.of("deleted")); n != 2 {
		t.Errorf("%v were counted as deleted, want 2", n)
	}
}

// A table with a retention of its own has that one alone, shorter or longer than the others.
func TestSweeper_RetentionOfATable(t *testing.T) {
	t.Parallel()
	tables, failure := map[string]time.Duration{inventory: 4 * 24 * time.Hour, "subscription.long": 2 * DefaultResolved}, error(nil)
	b := setup(t, func(c *Config) {
		c.Archive = nil
		c.Tables = &testTables{retentions: tables, err: &failure}
	})
	of := func(table string) gocql.UUID {
		l := &dlq.DeadLetter{Table: table, EventID: gocql.MustRandomUUID(), AggregateID: "k", Payload: []byte("{}"), Status: dlq.Suspended, FirstFailedAt: at(b.now.Load())}
		_, err := b.store.Write(t.Context(), l)
		b.must(err)
		b.must(b.store.Discard(t.Context(), l.EventID, eve))
		return l.EventID
	}
	short, long, usual, open := of(inventory), of("subscription.long"), of("subscription.other"), b.ofSubscription(1)[0]
	gone := func(when string, want ...gocql.UUID) {
		t.Helper()
		plan, _, err := b.sweeper.Plan(t.Context())
		b.must(err)
		r := b.sweep()
		n := 0
		for _, id := range []gocql.UUID{short, long, usual, open} {
			purged := !b.read(id).PurgedAt.IsZero()
			if purged != slices.Contains(want, id) {
				t.Errorf("%s: %s is purged: %v", when, id, purged)
			}
			if purged {
				n++
			}
		}
		if r.Archived[dlq.Resolved] != plan.Archived[dlq.Resolved] || n != len(want) {
			t.Errorf("%s: %+v, plan %+v, want %d gone", when, r, plan, len(want))
		}
	}
	gone("at first")
	b.advance(4*24*time.Hour + time.Minute)
	gone("after 4 days", short)
	b.advance(DefaultResolved)
	gone("after 34 days", short, usual)
	b.advance(DefaultResolved)
	gone("after 64 days", short, usual, long)
	failure = errors.New("no luck")
	if _, err := b.sweeper.sweep(t.Context()); !errors.Is(err, failure) {
		t.Errorf("Sweep() without the retentions = %v", err)
	}
}

func TestSweeper_OffDeletesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Archive, c.Resolved, c.Failed = nil, -1, -1 })
	ids := []gocql.UUID{b.write("a", 1, dlq.Resolved), b.write("b", 1, dlq.Failed)}
	b.advance(10 * DefaultFailed)
	if r := b.sweep(); len(r.Archived) != 0 {
		t.Errorf("%+v", r)
	}
	for _, id := range ids {
		if l := b.read(id); l.Payload == nil {
			t.Errorf("a %s dead letter was touched", l.Status)
		}
	}
}

// An outline without a copy is forgotten when no row of its age is left, and after Keep.
func TestSweeper_ForgetsWithoutAnArchive(t *testing.T) {
	t.Parallel()
	for ttl, forget := range map[time.Duration]bool{7 * 24 * time.Hour: true, 0: false, 2 * DefaultKeep: false} {
		b := setup(t, func(c *Config) {
			c.Archive, c.Tables = nil, &testTables{ttl: ttl}
		})
		id := b.write("a", 1, dlq.Resolved)
		b.advance(DefaultResolved + time.Minute)
		b.sweep()
		b.advance(DefaultKeep - time.Minute)
		if r := b.sweep(); r.Forgotten != 0 {
			t.Errorf("rows live %s: forgotten too early", ttl)
		}
		b.advance(2 * time.Minute)
		b.sweep()
		if _, err := b.store.Read(t.Context(), id); errors.Is(err, dlq.ErrNotFound) != forget {
			t.Errorf("rows live %s: the outline: %v", ttl, err)
		}
	}
}

// The retention of a restored dead letter begins again, with and without an archive.
func TestSweeper_ARestoredOneStays(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.write("a", 1, dlq.Resolved)
	b.advance(DefaultResolved + time.Minute)
	b.sweep()
	rec, err := b.archive.DeadLetter(t.Context(), b.read(id).Archive, id)
	b.must(err)
	c, err := rec.Copy()
	b.must(err)
	b.must(b.store.Restore(t.Context(), id, &c, eve))
	bare := b.conf
	bare.Archive, bare.Registerer = nil, nil
	none, err := NewSweeper(bare)
	b.must(err)
	for _, s := range []*Sweeper{b.sweeper, none} {
		if r, err := s.sweep(t.Context()); err != nil || len(r.Archived) != 0 {
			t.Errorf("a sweep after the restore: %+v, %v", r, err)
		}
	}
	b.advance(DefaultResolved - time.Minute)
	if r := b.sweep(); len(r.Archived) != 0 {
		t.Errorf("too early: %+v", r)
	}
	b.advance(2 * time.Minute)
	if r := b.sweep(); r.Archived[dlq.Resolved] != 1 {
		t.Errorf("30 days after the restore: %+v", r)
	}
}

// Dead letters that an operator replays or suspends between the read and the deletion
// stay.
func TestSweeper_AReplayWinsWithoutAnArchive(t *testing.T) {
	t.Parallel()
	b := setup(t, withoutArchive)
	id, other := b.write("a", 1, dlq.Failed), b.write("b", 1, dlq.Failed)
	b.advance(2 * DefaultFailed)
	fenced, err := dlq.Open(b.database.Session, schema.DefaultKeyspace, dlq.WithClock(b.archive.clock), dlq.WithTimeouts(30*time.Second, time.Minute), dlq.WithFence(&beforeWrites{do: func() {
		b.must(b.store.Replay(t.Context(), id, eve))
		b.must(b.store.Suspend(t.Context(), other, eve))
	}}))
	b.must(err)
	b.conf.Store, b.conf.Registerer = fenced, nil
	s, err := NewSweeper(b.conf)
	b.must(err)
	r, err := s.sweep(t.Context())
	if err != nil || r.Changed != 2 || len(r.Archived) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for id, want := range map[gocql.UUID]dlq.Status{id: dlq.Pending, other: dlq.Suspended} {
		if l := b.read(id); l.Status != want || l.Payload == nil {
			t.Errorf("the dead letter is %s", l.Status)
		}
	}
}

// Operators and a relay do anything at any time, and sweeps come in between. Nothing is
// deleted before its time, no open dead letter but an old failed one that blocks nobody,
// and every event that was ever dead stays known.
func TestSweeper_BesideOperators(t *testing.T) {
	t.Parallel()
	for _, archived := range []bool{true, false} {
		t.Run(fmt.Sprintf("archive %v", archived), func(t *testing.T) {
			t.Parallel()
			rnd := seeds.Rand(t)
			b := setup(t, func(c *Config) {
				if !archived {
					c.Archive = nil
				}
			})
			keeper := b.sweeper
			type state struct {
				l        dlq.DeadLetter
				restored time.Time
			}
			known := make(map[gocql.UUID]*state)
			var ids []gocql.UUID
			for step := range 250 {
				switch n := rnd.IntN(12); {
				case n < 2 || len(ids) == 0:
					id := b.write(fmt.Sprint("a", rnd.IntN(4)), int64(step+1), []dlq.Status{dlq.Resolved, dlq.Failed, dlq.Blocked, dlq.Suspended, dlq.Pending}[rnd.IntN(5)])
					ids, known[id] = append(ids, id), &state{}
				case n < 9:
					id := ids[rnd.IntN(len(ids))]
					var err error
					switch rnd.IntN(9) {
					case 0:
						err = b.store.Replay(t.Context(), id, eve)
					case 1:
						err = b.store.Discard(t.Context(), id, eve)
					case 2:
						err = b.store.Suspend(t.Context(), id, eve)
					case 3:
						_, err = b.store.Edit(t.Context(), id, dlq.Edit{Payload: fmt.Append(nil, step)}, eve, 0)
					case 4:
						if _, err = b.store.Claim(t.Context(), id, "relay", time.Minute); err == nil {
							err = b.store.Resolve(t.Context(), id, "relay", dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: "t"})
						}
					case 5:
						if _, err = b.store.Claim(t.Context(), id, "relay", time.Minute); err == nil {
							_, err = b.store.Fail(t.Context(), id, "relay", dlq.Failure{Class: "attempts_used"})
						}
					case 6:
						err = b.store.Set(t.Context(), id, dlq.Labels{Priority: new(rnd.IntN(9))}, eve)
					default:
						if archived {
							var each []error
							if each, err = keeper.Restore(t.Context(), []gocql.UUID{id}, eve); err == nil {
								err = each[0]
							}
							if err == nil && b.read(id).Version != known[id].l.Version {
								known[id].restored = b.conf.Store.Now()
							}
						}
					}
					if err != nil && !errors.Is(err, dlq.ErrRefused) && !errors.Is(err, dlq.ErrNoCopy) {
						t.Fatal(err)
					}
				case n < 10:
					b.advance(time.Duration(rnd.IntN(40*24)) * time.Hour)
				default:
					for _, id := range ids {
						known[id].l = b.read(id)
					}
					b.sweep()
					for _, id := range ids {
						old, now := known[id].l, b.read(id)
						if now.PurgedAt.IsZero() || !old.PurgedAt.IsZero() {
							continue
						}
						since, min := old.ResolvedAt, DefaultResolved
						if old.Status == dlq.Failed {
							since, min = old.LastFailedAt, DefaultFailed
						}
						if known[id].restored.After(since) {
							since = known[id].restored
						}
						age := b.conf.Store.Now().Sub(since)
						if old.Status != dlq.Resolved && old.Status != dlq.Failed || age < min || (now.Archive != "") != archived {
							t.Errorf("step %d: a %s dead letter of %s was deleted, archive %q", step, old.Status, age, now.Archive)
						}
						if old.Status != dlq.Failed || old.Unblocked {
							continue
						}
						chain, err := b.store.Chain(t.Context(), old.Table, old.AggregateID)
						b.must(err)
						if slices.ContainsFunc(chain, func(e dlq.ChainEntry) bool { return e.Status == dlq.Blocked && e.Sequence > old.Sequence }) {
							t.Errorf("step %d: a failed dead letter was deleted that blocked others", step)
						}
					}
				}
				for _, id := range ids {
					if rnd.IntN(20) == 0 {
						known[id].l = b.read(id) // never absent
					}
				}
			}
		})
	}
}

// A process without an archive deletes nothing while another one archives: its
// configuration may be incomplete.
func TestSweeper_DeletesNothingBesideAnArchive(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	bare, none := b.bare()
	turn := func(s *Sweeper) {
		t.Helper()
		b.must(b.turn(s))
	}
	gone := func(id gocql.UUID) bool { return !b.read(id).PurgedAt.IsZero() }
	first := b.write("a", 1, dlq.Resolved)
	b.advance(2 * DefaultResolved)
	turn(none)
	if gone(first) {
		t.Error("it deleted at once, before a process with an archive had its turn")
	}
	turn(b.sweeper)
	if b.read(first).Archive == "" {
		t.Error("the process with an archive did not archive")
	}
	second := b.write("a", 2, dlq.Resolved)
	b.advance(DefaultResolved + time.Hour)
	_, err := b.sweeper.Sweep(t.Context())
	b.must(err)
	if b.read(second).Archive == "" {
		t.Error("it was not archived by hand")
	}
	third := b.write("a", 3, dlq.Resolved)
	bare.Resolved = time.Hour
	none, err = NewSweeper(bare)
	b.must(err)
	b.advance(archiveGrace)
	turn(none)
	if gone(third) {
		t.Error("it deleted beside a process with an archive")
	}
	b.advance(2 * time.Hour)
	turn(none)
	if l := b.read(third); !gone(third) || l.Archive != "" {
		t.Errorf("a week after the last sweep with an archive: %s in %q", l.Status, l.Archive)
	}
}

// An archive that cannot be written is not a removed one: its process tries, and the one
// without it deletes nothing.
func TestSweeper_DeletesNothingBesideABrokenArchive(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	_, none := b.bare()
	b.must(b.turn(b.sweeper))
	never := b.write("a", 1, dlq.Failed) // an event that was never published
	b.advance(DefaultFailed + 25*time.Hour)
	dir := b.archive.bucket.(*folder).dir
	b.must(os.RemoveAll(dir))
	b.must(os.WriteFile(dir, nil, 0o600))
	for day := range 10 {
		if day == 5 { // by hand
			if _, err := b.sweeper.Sweep(t.Context()); err == nil {
				t.Fatal("the archive works")
			}
		} else if day != 6 && b.turn(b.sweeper) == nil {
			t.Fatal("the archive works")
		}
		b.must(b.turn(none))
		if l := b.read(never); !l.PurgedAt.IsZero() || l.Payload == nil {
			t.Fatalf("day %d: a failed dead letter is %s with a payload of %d bytes, copy in %q", day, l.Status, len(l.Payload), l.Archive)
		}
		b.advance(24 * time.Hour)
	}
}

// bare returns the configuration of a process without the archive, and its sweeper.
func (b *fixture) bare() (Config, *Sweeper) {
	b.Helper()
	conf := b.conf
	conf.Archive, conf.Owner, conf.Registerer = nil, "bare", nil
	s, err := NewSweeper(conf)
	b.must(err)
	return conf, s
}

// turn is a turn of a process that then leaves the duty.
func (b *fixture) turn(s *Sweeper) error {
	b.Helper()
	duty, err := b.store.Duty(dutyName, s.conf.Owner, dutyTTL)
	b.must(err)
	err = s.turn(b.Context(), duty)
	b.must(duty.Leave(b.Context()))
	return err
}

// testTables have these retentions and this time to live of their rows.
type testTables struct {
	retentions map[string]time.Duration
	err        *error
	ttl        time.Duration
}

func (t *testTables) Retentions(context.Context) (map[string]time.Duration, error) {
	if t.err != nil {
		return t.retentions, *t.err
	}
	return t.retentions, nil
}

func (t *testTables) RowTTL(context.Context, string) (time.Duration, error) { return t.ttl, nil }

// beforeWrites is a fence that calls do before the first write.
type beforeWrites struct {
	do   func()
	done bool
}

func (f *beforeWrites) Check() error {
	if !f.done {
		f.done = true
		f.do()
	}
	return nil
}
