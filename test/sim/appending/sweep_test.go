package appending

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// rowTTL is the time that the outbox keeps rows in the tests of sweeps: the driver's heartbeats
// of a week take long.
const rowTTL = 8 * time.Hour

// expiring is bubble with a table of rows that expire after rowTTL.
func expiring(t *testing.T, conf scyllafake.Config, f func(*testing.T, world.World)) {
	t.Helper()
	bubble(t, conf, func(t *testing.T, w world.World) {
		if err := w.Session.Query(fmt.Sprint("ALTER TABLE outbox_messages WITH default_time_to_live = ", int(rowTTL/time.Second))).Exec(); err != nil {
			t.Fatal(err)
		}
		f(t, w)
	})
}

// rows are the accounts, as a sweep needs them.
func rows(s *gocql.Session) outbox.Rows {
	return outbox.Rows{
		AggregateType: "account",
		Version: func(_ context.Context, last outbox.Event) (int64, error) {
			a, err := load(s, last.AggregateID.UUID())
			return a.version, err
		},
		Apply: func(_ context.Context, e outbox.Event) error { return store(s, &e) },
	}
}

// lag stores two events of each of n accounts, and the first alone in their rows.
func lag(t *testing.T, w world.World, a *outbox.Appender, n int) (ids []gocql.UUID) {
	t.Helper()
	for range n {
		id := outbox.NewID().UUID()
		ids = append(ids, id)
		first := mustAppend(t, a, at(id, 1), outbox.AppendOptions{})
		if err := store(w.Session, &first); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, a, at(id, 2), outbox.AppendOptions{VersionWrittenAt: time.Now()})
	}
	return ids
}

// mustHave checks the versions of accounts.
func mustHave(t *testing.T, w world.World, version int64, ids ...gocql.UUID) {
	t.Helper()
	for _, id := range ids {
		if got, err := load(w.Session, id); err != nil || got.version != version || got.Balance != version {
			t.Errorf("account %s is at version %d with balance %d, %v; want %d of both", id, got.version, got.Balance, err, version)
		}
	}
}

func mustSweep(t *testing.T, a *outbox.Appender, r outbox.Rows) outbox.Swept {
	t.Helper()
	s, err := a.Sweep(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if s.Complete.IsZero() || !s.Next.After(time.Now()) {
		t.Errorf("Sweep() = %+v, want a complete pass with a next one", s)
	}
	return s
}

// A change that nobody applied reaches the rows while its event exists, so that its number is
// never given again: also if the sweeper runs only once in half of the TTL.
func TestSweep_AppliesAnEventBeforeItExpires(t *testing.T) {
	for name, conf := range versions {
		t.Run(name, func(t *testing.T) {
			expiring(t, conf, func(t *testing.T, w world.World) {
				a := newAppender(t, w.Session, outbox.AppenderConfig{})
				if s := mustSweep(t, a, rows(w.Session)); s.Aggregates != 0 || s.Late {
					t.Errorf("of an empty table: %+v", s)
				}
				ids := lag(t, w, a, 5)
				time.Sleep(rowTTL/2 + time.Minute)
				began := time.Now()
				if s := mustSweep(t, a, rows(w.Session)); s.Aggregates != 5 || s.Events != 5 || s.Late || s.Complete.Before(began.Truncate(time.Millisecond)) {
					t.Errorf("after half of the TTL: %+v, want 5 aggregates with an event each", s)
				}
				mustHave(t, w, 2, ids...)
				second := at(ids[0], 2)
				found, err := a.Since(t.Context(), &second, 2)
				if err != nil || len(found) != 1 {
					t.Fatal(found, err)
				}
				if got := newest(t, w, &found[0]); got.Before(began.Add(-time.Second)) {
					t.Errorf("the newest log row of the event is of %s, which the relay has passed at %s", got, began)
				}
				if s := mustSweep(t, a, rows(w.Session)); s.Aggregates != 0 {
					t.Errorf("immediately again: %+v, want that nothing is due", s)
				}
				time.Sleep(rowTTL + time.Minute)
				if found, err := a.Since(t.Context(), &second, 1); err != nil || len(found) != 0 {
					t.Fatalf("after the TTL there are %d events, %v", len(found), err)
				}
				mustHave(t, w, 2, ids...)
				mustAppend(t, a, at(ids[0], 3), outbox.AppendOptions{VersionWrittenAt: began})
			})
		})
	}
}

// Without a sweeper for longer than the TTL the change is lost. The next sweep reports this.
func TestSweep_ReportsThatItIsLate(t *testing.T) {
	expiring(t, versions["5.1"], func(t *testing.T, w world.World) {
		a := newAppender(t, w.Session, outbox.AppenderConfig{})
		mustSweep(t, a, rows(w.Session))
		ids := lag(t, w, a, 1)
		time.Sleep(rowTTL + time.Minute)
		if s := mustSweep(t, a, rows(w.Session)); !s.Late || s.Events != 0 {
			t.Errorf("after the TTL: %+v, want it late", s)
		}
		mustHave(t, w, 1, ids...)
		if s := mustSweep(t, a, rows(w.Session)); s.Late {
			t.Errorf("the sweep after a late one: %+v", s)
		}
	})
}

// A part of which no sweep has ever ended is late too, once its events may have expired.
func TestSweep_ReportsThatAPartWasNeverSwept(t *testing.T) {
	expiring(t, versions["5.1"], func(t *testing.T, w world.World) {
		a := newAppender(t, w.Session, outbox.AppenderConfig{})
		id := lag(t, w, a, 1)[0]
		never := rows(w.Session)
		never.Version = func(context.Context, outbox.Event) (int64, error) { return 0, errors.New("unreadable") }
		for i, late := range []bool{false, false, true, true} {
			if s, err := a.Sweep(t.Context(), never); err == nil || !s.Complete.IsZero() || s.Late != late {
				t.Errorf("Sweep() = %+v, %v; want it late %t, and not complete", s, err, late)
			}
			time.Sleep(rowTTL/2 + time.Minute)
			mustAppend(t, a, at(id, int64(3+i)), outbox.AppendOptions{VersionWrittenAt: time.Now()}) // a row of the part remains
		}
		if s := mustSweep(t, a, rows(w.Session)); !s.Late {
			t.Errorf("the first complete pass: %+v, want it late", s)
		}
		if s := mustSweep(t, a, rows(w.Session)); s.Late {
			t.Errorf("the pass after it: %+v", s)
		}
	})
}

// A sweeper that dies is continued by the next one: no part is swept twice.
func TestSweep_ContinuesWhereAnotherDied(t *testing.T) {
	for name, conf := range versions {
		t.Run(name, func(t *testing.T) {
			expiring(t, conf, func(t *testing.T, w world.World) {
				calm := newAppender(t, w.Session, outbox.AppenderConfig{})
				ids := lag(t, w, calm, 30)
				ctx, cancel := context.WithCancel(t.Context())
				left := 120 // of about 250 statements
				dying := newAppender(t, w.Session, outbox.AppenderConfig{Attempt: func(ctx context.Context, statement func(context.Context) error) error {
					if left--; left == 0 {
						cancel()
					}
					return statement(ctx)
				}})
				first, err := dying.Sweep(ctx, rows(w.Session))
				if !errors.Is(err, context.Canceled) || first.Aggregates < 2 || first.Aggregates > 28 {
					t.Fatalf("the dying sweeper: %+v, %v", first, err)
				}
				second := mustSweep(t, calm, rows(w.Session))
				// The part in which the first one died is swept again.
				if all := first.Aggregates + second.Aggregates; all < 30 || all > 35 {
					t.Errorf("%d and %d of 30 aggregates were compared, want each once", first.Aggregates, second.Aggregates)
				}
				mustHave(t, w, 2, ids...)
			})
		})
	}
}

// Several sweepers at once, among writers and lost statements, roll everything forward and store
// nothing twice.
func TestSweep_SeveralAtOnce(t *testing.T) {
	for name, conf := range versions {
		t.Run(name, func(t *testing.T) {
			expiring(t, conf, func(t *testing.T, w world.World) {
				calm := newAppender(t, w.Session, outbox.AppenderConfig{})
				ids := lag(t, w, calm, 30)
				var wg sync.WaitGroup
				var sum [3]outbox.Swept
				for i := range sum {
					a := newAppender(t, w.Session, outbox.AppenderConfig{Attempt: lossy(uint64(i), new(atomic.Int64))})
					wg.Go(func() {
						for {
							s, err := a.Sweep(t.Context(), rows(w.Session))
							sum[i].Aggregates += s.Aggregates
							if err == nil {
								return
							}
							time.Sleep(time.Minute)
						}
					})
				}
				wg.Go(func() {
					for _, id := range ids[:5] { // a writer that never learned of event 2
						_, err := calm.AppendNext(t.Context(), at(id, 2), outbox.AppendOptions{VersionWrittenAt: time.Now()})
						if _, ok := errors.AsType[*outbox.ConflictError](err); !ok {
							t.Errorf("a writer beside the sweepers: %v, want a conflict", err)
						}
					}
				})
				wg.Wait()
				if all := sum[0].Aggregates + sum[1].Aggregates + sum[2].Aggregates; all < 30 || all > 60 {
					t.Errorf("three sweepers compared %d aggregates, want little more than 30", all)
				}
				mustHave(t, w, 2, ids...)
				for _, id := range ids {
					if found, err := calm.Since(t.Context(), &outbox.Event{AggregateID: outbox.IDFromUUID(id)}, 1); err != nil || len(found) != 2 {
						t.Errorf("aggregate %s has %d events, %v, want 2", id, len(found), err)
					}
				}
			})
		})
	}
}

// Many aggregates that can never be rolled forward keep the sweep from no other one: the failures
// of a part are returned up to a limit, and counted.
func TestSweep_ManyAggregatesFail(t *testing.T) {
	expiring(t, versions["5.1"], func(t *testing.T, w world.World) {
		a := newAppender(t, w.Session, outbox.AppenderConfig{})
		ids := lag(t, w, a, 1000)
		r := rows(w.Session)
		apply := r.Apply
		bad := make(map[gocql.UUID]bool)
		for _, id := range ids[:950] {
			bad[id] = true
		}
		r.Apply = func(ctx context.Context, e outbox.Event) error {
			if bad[e.AggregateID.UUID()] {
				return errors.New("broken")
			}
			return apply(ctx, e)
		}
		s, err := a.Sweep(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), "more aggregates of part") || s.Events != 50 || s.Aggregates != 1000 {
			t.Errorf("Sweep() = %+v, %v; want all compared, and 50 events applied", s, err)
		}
		mustHave(t, w, 2, ids[950:]...)
	})
}

// An aggregate that cannot be rolled forward is named, delays no other one, and is tried again.
func TestSweep_OneAggregateFails(t *testing.T) {
	expiring(t, versions["5.1"], func(t *testing.T, w world.World) {
		a := newAppender(t, w.Session, outbox.AppenderConfig{})
		ids := lag(t, w, a, 20)
		bad, errBroken := ids[7], errors.New("broken")
		r := rows(w.Session)
		apply := r.Apply
		r.Apply = func(ctx context.Context, e outbox.Event) error {
			if e.AggregateID.UUID() == bad {
				return errBroken
			}
			return apply(ctx, e)
		}
		s, err := a.Sweep(t.Context(), r)
		if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), bad.String()) || !s.Complete.IsZero() || s.Events != 19 {
			t.Errorf("Sweep() = %+v, %v; want the aggregate %s, and the others swept", s, err, bad)
		}
		if wait := time.Until(s.Next); wait <= 0 || wait > rowTTL/100 {
			t.Errorf("the next sweep is in %s, want soon", wait)
		}
		mustHave(t, w, 1, bad)
		mustHave(t, w, 2, append(ids[:7:7], ids[8:]...)...)
		part := func(id gocql.UUID) (part uint64) {
			var token int64
			if err := w.Session.Query("SELECT token(aggregate_id) FROM outbox_messages WHERE aggregate_id = ? LIMIT 1", id.String()).Scan(&token); err != nil {
				t.Fatal(err)
			}
			return (uint64(token) + 1<<63) / (1 << 58) // of 64
		}
		rest := 0 // the aggregates in the part of the one that failed
		for _, id := range ids {
			if part(id) == part(bad) {
				rest++
			}
		}
		if s := mustSweep(t, a, rows(w.Session)); s.Events != 1 || s.Aggregates != rest {
			t.Errorf("the next sweep: %+v, want one part alone, with %d aggregates", s, rest)
		}
		mustHave(t, w, 2, bad)
	})
}

// A sweep of a table with other columns: text ids, numbers of 32 bits, the highest number first,
// static columns, and aggregates of several types.
func TestSweep_OwnTable(t *testing.T) {
	for name, conf := range versions {
		t.Run(name, func(t *testing.T) {
			bubble(t, conf, func(t *testing.T, w world.World) {
				const create = "CREATE TABLE ledger (account text, n int, id uuid, kind text, type text, payload text, note text static, PRIMARY KEY (account, n))" +
					" WITH CLUSTERING ORDER BY (n DESC) AND cdc = {'enabled': true} AND default_time_to_live = 28800"
				if err := w.Session.Query(create).Exec(); err != nil {
					t.Fatal(err)
				}
				columns, err := outbox.ReadColumns(t.Context(), w.Session, "outbox", "ledger")
				if err != nil {
					t.Fatal(err)
				}
				table, err := outbox.Mapping{Columns: map[string]string{
					"aggregate_id": "account", "seq": "n", "event_id": "id", "aggregate_type": "kind", "event_type": "type",
				}}.Table("outbox", "ledger", columns)
				if err != nil {
					t.Fatal(err)
				}
				a, err := outbox.NewAppender(t.Context(), w.Session, table, outbox.AppenderConfig{})
				if err != nil {
					t.Fatal(err)
				}
				settled := outbox.Event{ID: outbox.NewID(), AggregateID: outbox.IDFromText("settled"), Sequence: 1, AggregateType: "invoice", Type: "Changed", Payload: []byte("{}"), CreatedAt: time.Now()}
				mustAppend(t, a, settled, outbox.AppendOptions{})
				other := settled
				other.ID = outbox.NewID()
				_, err = a.AppendNext(t.Context(), other, outbox.AppendOptions{})
				if lost, ok := errors.AsType[*outbox.ConflictError](err); !ok || lost.Events[0].ID != settled.ID {
					t.Errorf("a second writer: %v, want a conflict", err)
				}
				have := make(map[string]int64)
				for i := range 40 {
					id, kind := fmt.Sprint("account-", i), "account"
					if i%4 == 0 {
						kind = "invoice"
					}
					have[id] = 1
					for n := range int64(3) {
						mustAppend(t, a, outbox.Event{ID: outbox.NewID(), AggregateID: outbox.IDFromText(id), Sequence: n + 1, AggregateType: kind, Type: "Changed", Payload: []byte("{}"), CreatedAt: time.Now()}, outbox.AppendOptions{})
					}
					if err := w.Session.Query("INSERT INTO ledger (account, note) VALUES (?, 'x')", fmt.Sprint("noted-", i)).Exec(); err != nil {
						t.Fatal(err)
					}
				}
				s := mustSweep(t, a, outbox.Rows{
					AggregateType: "account",
					Version:       func(_ context.Context, last outbox.Event) (int64, error) { return have[last.AggregateID.String()], nil },
					Apply: func(_ context.Context, e outbox.Event) error {
						if have[e.AggregateID.String()]+1 != e.Sequence {
							t.Errorf("event %d of %s follows %d", e.Sequence, e.AggregateID.String(), have[e.AggregateID.String()])
						}
						have[e.AggregateID.String()] = e.Sequence
						return nil
					},
				})
				if s.Aggregates != 30 || s.Events != 60 {
					t.Errorf("Sweep() = %+v, want 30 aggregates with two events each", s)
				}
				for id, version := range have {
					var i int
					if _, err := fmt.Sscanf(id, "account-%d", &i); err != nil || version != map[bool]int64{true: 1, false: 3}[i%4 == 0] {
						t.Errorf("%s is at version %d, %v", id, version, err)
					}
				}
			})
		})
	}
}
