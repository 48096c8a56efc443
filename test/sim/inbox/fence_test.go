package inbox

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A duplicate and a gap are different results, and neither changes anything.
func TestFence_DuplicateAndGap(t *testing.T) {
	bubble(t, []string{totals}, func(t *testing.T, w world.World) {
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		mustGap := func(seq, have int64) {
			t.Helper()
			got, err := apply(t, f, "a", seq)
			gap, ok := errors.AsType[*inbox.GapError](err)
			if !ok || got != inbox.Unknown || gap.Want != have+1 || gap.Sequence != seq {
				t.Errorf("event %d = %s, %v; want a gap after %d", seq, got, err, have)
			}
		}
		mustGap(2, 0)
		mustApply(t, f, "a", 1, inbox.Applied)
		mustApply(t, f, "a", 1, inbox.Duplicate)
		mustGap(3, 1)
		mustApply(t, f, "a", 2, inbox.Applied)
		mustApply(t, f, "a", 3, inbox.Applied)
		mustApply(t, f, "a", 1, inbox.Duplicate)
		mustApply(t, f, "b", 1, inbox.Applied) // aggregates are independent
		mustHave(t, w.Session, "a", 1, 2, 3)
		mustHave(t, w.Session, "b", 1)
		if e, err := f.Last(t.Context(), inbox.Key{"a"}); e.Sequence != 3 || err != nil {
			t.Errorf("Last() = %d, %v; want 3", e.Sequence, err)
		}
		if e, err := f.Last(t.Context(), inbox.Key{"none"}); e.Sequence != 0 || err != nil {
			t.Errorf("Last() without events = %d, %v; want 0", e.Sequence, err)
		}
		_, err := apply(t, f, "a", 6)
		if err == nil || err.Error() != "inbox: event 6 of outbox.totals [a]: event 4 must come first; deliver that event, or pass over missing events with Skip" {
			t.Errorf("a gap is reported as %v", err)
		}
	})
}

// Another event under the number of the last applied one is a conflict where the table has a
// column for ids, also after a lost response, and changes nothing.
func TestFence_AnotherEventWithTheNumber(t *testing.T) {
	withID := strings.Replace(totals, "applied_seq bigint static", "applied_seq bigint static, applied_id text static", 1)
	bubble(t, []string{withID}, func(t *testing.T, w world.World) {
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		apply := func(id string, seq int64) (inbox.Outcome, error) {
			return f.Apply(t.Context(), inbox.Event{Key: inbox.Key{"a"}, Sequence: seq, ID: id}, effect("a", seq))
		}
		mustBe := func(got inbox.Outcome, err error, want inbox.Outcome) {
			t.Helper()
			if got != want || err != nil {
				t.Fatalf("%s, %v; want %s", got, err, want)
			}
		}
		got, err := apply("one", 1)
		mustBe(got, err, inbox.Applied)
		got, err = apply("one", 1)
		mustBe(got, err, inbox.Duplicate)
		for _, lost := range []bool{false, true} {
			if lost {
				casTimeout(w, engine.FateNormal)
			}
			got, err = apply("other", 1)
			if conflict, ok := errors.AsType[*inbox.ConflictError](err); got != inbox.Unknown || !ok || conflict.Applied != "one" || conflict.Event.ID != "other" {
				t.Errorf("another event 1: %s, %v; want a conflict with the applied one", got, err)
			}
		}
		got, err = apply("two", 2)
		mustBe(got, err, inbox.Applied)
		if err := f.Skip(t.Context(), inbox.Event{Key: inbox.Key{"a"}, Sequence: 3}); err != nil {
			t.Fatal(err)
		}
		got, err = apply("three", 3) // the id of an event that was passed over is unknown
		mustBe(got, err, inbox.Duplicate)
		if e, err := f.Last(t.Context(), inbox.Key{"a"}); e.Sequence != 3 || err != nil {
			t.Errorf("Last() = %d, %v; want 3", e.Sequence, err)
		}
	})
}

// An error of the effect is returned and changes nothing.
func TestFence_EffectFails(t *testing.T) {
	bubble(t, []string{totals}, func(t *testing.T, w world.World) {
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		broken := errors.New("no such product")
		got, err := f.Apply(t.Context(), inbox.Event{Key: inbox.Key{"a"}, Sequence: 1}, func(b *gocql.Batch) error {
			b.Query("INSERT INTO totals (id, line) VALUES ('a', 1)")
			return broken
		})
		if got != inbox.Unknown || !errors.Is(err, broken) {
			t.Errorf("Apply() = %s, %v; want the error of the effect", got, err)
		}
		mustHave(t, w.Session, "a")
	})
}

// Each order accepts its events, and Skip passes over missing ones.
func TestFence_Orders(t *testing.T) {
	const gap = inbox.Unknown
	for name, c := range map[string]struct {
		order  inbox.Order
		events []int64
		want   []inbox.Outcome
	}{
		"from one":          {inbox.FromOne, []int64{5, 1, 2, 2, 4}, []inbox.Outcome{gap, inbox.Applied, inbox.Applied, inbox.Duplicate, gap}},
		"from any":          {inbox.FromAny, []int64{5, 5, 4, 6, 8, 7}, []inbox.Outcome{inbox.Applied, inbox.Duplicate, inbox.Duplicate, inbox.Applied, gap, inbox.Applied}},
		"from any, the 1st": {inbox.FromAny, []int64{1, 2, 4}, []inbox.Outcome{inbox.Applied, inbox.Applied, gap}},
		"increasing":        {inbox.Increasing, []int64{3, 3, 7, 5, 8}, []inbox.Outcome{inbox.Applied, inbox.Duplicate, inbox.Applied, inbox.Duplicate, inbox.Applied}},
		"increasing from 1": {inbox.Increasing, []int64{1, 4, 1}, []inbox.Outcome{inbox.Applied, inbox.Applied, inbox.Duplicate}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{totals}, func(t *testing.T, w world.World) {
				f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals", Order: c.order})
				var done []int64
				for i, seq := range c.events {
					got, err := apply(t, f, "a", seq)
					_, missing := errors.AsType[*inbox.GapError](err)
					if got != c.want[i] || missing != (got == gap) || !missing && err != nil {
						t.Errorf("delivery %d, event %d = %s, %v; want %s", i, seq, got, err, c.want[i])
					}
					if got == inbox.Applied {
						done = append(done, seq)
					}
				}
				mustHave(t, w.Session, "a", done...)
			})
		})
	}
}

func TestFence_SkipPassesOverEvents(t *testing.T) {
	bubble(t, []string{totals}, func(t *testing.T, w world.World) {
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		skip := func(id string, seq, last int64) {
			t.Helper()
			if err := f.Skip(t.Context(), inbox.Event{Key: inbox.Key{id}, Sequence: seq}); err != nil {
				t.Fatal(err)
			}
			if e, err := f.Last(t.Context(), inbox.Key{id}); e.Sequence != last || err != nil {
				t.Errorf("after Skip(%d) the last event of %s is %d, %v; want %d", seq, id, e.Sequence, err, last)
			}
		}
		mustApply(t, f, "a", 1, inbox.Applied)
		skip("a", 3, 3)
		mustApply(t, f, "a", 2, inbox.Duplicate)
		mustApply(t, f, "a", 4, inbox.Applied)
		skip("a", 2, 4) // the mark stays
		mustHave(t, w.Session, "a", 1, 4)
		skip("snapshot", 100, 100)
		mustApply(t, f, "snapshot", 101, inbox.Applied)
		mustHave(t, w.Session, "snapshot", 101)
	})
}

// A conditional batch that timed out was applied, lost, or decided only. In each case
// its effect is applied once.
func TestFence_LostResponses(t *testing.T) {
	for name, fate := range map[string]engine.Fate{"applied": engine.FateApply, "lost": engine.FateNormal, "decided": engine.FateDecided} {
		for _, order := range []inbox.Order{inbox.FromOne, inbox.FromAny, inbox.Increasing} {
			t.Run(fmt.Sprint(name, order), func(t *testing.T) {
				bubble(t, []string{totals}, func(t *testing.T, w world.World) {
					f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals", Order: order})
					for _, seq := range numbers(3) {
						casTimeout(w, fate)
						mustApply(t, f, "a", seq, inbox.Applied)
						mustApply(t, f, "a", seq, inbox.Duplicate)
					}
					mustHave(t, w.Session, "a", 1, 2, 3)
				})
			})
		}
	}
}

// A batch that is decided only, whose consumer has stopped, is part of what Last returns.
func TestFence_LastIncludesWhatIsDecided(t *testing.T) {
	bubble(t, []string{totals}, func(t *testing.T, w world.World) {
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		ctx, cancel := context.WithCancel(t.Context())
		casTimeout(w, engine.FateDecided)
		w.Node.Faults().MustAdd(faults.Rule{
			Match:  faults.Match{Kinds: []engine.OpKind{engine.OpSerialRead}, Func: func(engine.Op) bool { cancel(); return true }},
			Effect: faults.Effect{Failure: faults.Unavailable(0, 1)}, Count: 1,
		})
		if got, err := f.Apply(ctx, inbox.Event{Key: inbox.Key{"a"}, Sequence: 1}, effect("a", 1)); got != inbox.Unknown || !errors.Is(err, context.Canceled) {
			t.Errorf("Apply() = %s, %v; want unknown, because its consumer stops", got, err)
		}
		if e, err := f.Last(t.Context(), inbox.Key{"a"}); e.Sequence != 1 || err != nil {
			t.Errorf("Last() = %d, %v; want 1", e.Sequence, err)
		}
		mustHave(t, w.Session, "a", 1)
	})
}

// While the database refuses everything Apply retries until its context ends, and in
// any case ends. The event can be delivered again.
func TestFence_EndsWithItsContext(t *testing.T) {
	bubble(t, []string{totals}, func(t *testing.T, w world.World) {
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		hits := w.Fault(0, faults.Effect{Failure: faults.Unavailable(0, 1)}, engine.OpCAS, engine.OpSerialRead)
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("the consumer stops")
		go func() {
			for hits() < 3 {
				time.Sleep(time.Millisecond)
			}
			cancel(stopped)
		}()
		if got, err := f.Apply(ctx, inbox.Event{Key: inbox.Key{"a"}, Sequence: 1}, effect("a", 1)); got != inbox.Unknown || !errors.Is(err, stopped) {
			t.Errorf("Apply() = %s, %v; want unknown, and the cause of the end of its context", got, err)
		}
		got, err := apply(t, f, "a", 1)
		if got != inbox.Unknown || err == nil || !strings.Contains(err.Error(), "outcome unknown after 10 attempts; deliver it again: ") {
			t.Errorf("Apply() = %s, %v; want unknown after 10 attempts", got, err)
		}
		w.Node.Faults().Clear()
		mustApply(t, f, "a", 1, inbox.Applied)
		mustHave(t, w.Session, "a", 1)
	})
}

// An effect outside of the partition is refused as a whole, with the reason; a condition
// of the effect itself is another answer than a duplicate.
func TestFence_RefusesOtherEffects(t *testing.T) {
	bubble(t, []string{totals, "CREATE TABLE others (id text PRIMARY KEY, v int)"}, func(t *testing.T, w world.World) {
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		for stmt, want := range map[string]string{
			"INSERT INTO others (id, v) VALUES ('a', 1)":      "multiple tables",
			"INSERT INTO totals (id, line) VALUES ('b', 1)":   "multiple partitions",
			"INSERT INTO totals (id, nosuch) VALUES ('a', 1)": "nosuch",
		} {
			got, err := f.Apply(t.Context(), inbox.Event{Key: inbox.Key{"a"}, Sequence: 1}, func(b *gocql.Batch) error { b.Query(stmt); return nil })
			const fix = "correct the statements of the effect: they may write only the partition of its key in outbox.totals"
			if got != inbox.Unknown || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fix) {
				t.Errorf("%s = %s, %v; want %q and %q", stmt, got, err, want, fix)
			}
		}
		mustApply(t, f, "a", 1, inbox.Applied)
		for _, stmt := range []string{"INSERT INTO totals (id, line) VALUES ('a', 1) IF NOT EXISTS", "UPDATE totals SET note = 'x' WHERE id = 'a' AND line = 1 IF note = 'y'"} {
			got, err := f.Apply(t.Context(), inbox.Event{Key: inbox.Key{"a"}, Sequence: 2}, func(b *gocql.Batch) error { b.Query(stmt); return nil })
			if got != inbox.Unknown || !errors.Is(err, inbox.ErrCondition) {
				t.Errorf("%s = %s, %v; want ErrCondition", stmt, got, err)
			}
			mustHave(t, w.Session, "a", 1)
		}
		if got, err := f.Apply(t.Context(), inbox.Event{Key: inbox.Key{"a"}, Sequence: 2}, func(b *gocql.Batch) error {
			b.Query("UPDATE totals SET note = 'x' WHERE id = 'a' AND line = 1 IF note = 'event 1'")
			return nil
		}); got != inbox.Applied || err != nil {
			t.Errorf("an effect with a satisfied condition = %s, %v", got, err)
		}
		for seq, key := range map[int64]inbox.Key{0: {"a"}, 3: {"a", 1}, 4: nil} {
			if got, err := f.Apply(t.Context(), inbox.Event{Key: key, Sequence: seq}, nil); got != inbox.Unknown || err == nil {
				t.Errorf("event %d of %v = %s, %v; want an error", seq, key, got, err)
			}
		}
	})
}

// NewFence names the field and prints a statement that makes the table fit.
func TestNewFence_NamesTheFix(t *testing.T) {
	bubble(t, []string{
		"CREATE TABLE bare (id text, line int, PRIMARY KEY (id, line))",
		"CREATE TABLE rows (id text, line int, applied_seq bigint, PRIMARY KEY (id, line))",
		"CREATE TABLE ints (id text, line int, applied_seq int static, PRIMARY KEY (id, line))",
		`CREATE TABLE "Quoted" (id text PRIMARY KEY, v int)`,
	}, func(t *testing.T, w world.World) {
		alter := regexp.MustCompile(`ALTER TABLE \S+ ADD (\S+) bigint( static)?`)
		for table, want := range map[string]string{
			"bare":   "inbox: FenceConfig.Column: outbox.bare has no column applied_seq; run ALTER TABLE outbox.bare ADD applied_seq bigint static",
			"rows":   `inbox: FenceConfig.Column: applied_seq of outbox.rows is a regular column of type bigint, and must be static of type bigint; run ALTER TABLE outbox.rows ADD applied_seq_mark bigint static and set Column to "applied_seq_mark"`,
			"ints":   `inbox: FenceConfig.Column: applied_seq of outbox.ints is a static column of type int, and must be static of type bigint; run ALTER TABLE outbox.ints ADD applied_seq_mark bigint static and set Column to "applied_seq_mark"`,
			"Quoted": `inbox: FenceConfig.Column: outbox."Quoted" has no column applied_seq; run ALTER TABLE outbox."Quoted" ADD applied_seq bigint`,
		} {
			_, err := inbox.NewFence(t.Context(), w.Session, inbox.FenceConfig{Table: table})
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v\nwant %s", table, err, want)
				continue
			}
			m := alter.FindStringSubmatch(err.Error())
			run(t, w.Session, m[0])
			f := newFence(t, w.Session, inbox.FenceConfig{Table: table, Column: m[1]})
			if got, err := f.Apply(t.Context(), inbox.Event{Key: inbox.Key{"a"}, Sequence: 1}, nil); got != inbox.Applied || err != nil {
				t.Errorf("after %s: Apply() = %s, %v", m[0], got, err)
			}
		}
		for _, c := range []struct {
			cfg  inbox.FenceConfig
			want string
		}{
			{inbox.FenceConfig{}, "FenceConfig.Table is empty"},
			{inbox.FenceConfig{Table: "nosuch"}, "FenceConfig.Table: outbox.nosuch does not exist"},
			{inbox.FenceConfig{Table: "bare", Order: 7}, "FenceConfig.Order 7 is unknown"},
			{inbox.FenceConfig{Table: "bare", TTL: time.Millisecond}, "FenceConfig.TTL 1ms: use whole seconds"},
			{inbox.FenceConfig{Table: "bare", TTL: time.Hour}, "FenceConfig.TTL 1h0m0s: an aggregate whose mark has expired would wait for event 1"},
		} {
			if _, err := inbox.NewFence(t.Context(), w.Session, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("NewFence(%+v) error = %v, want %q", c.cfg, err, c.want)
			}
		}
		if _, err := inbox.NewFence(t.Context(), nil, inbox.FenceConfig{Table: "bare"}); err == nil || !strings.Contains(err.Error(), "session is nil") {
			t.Errorf("without a session: %v", err)
		}
	})
}

// Keys of several columns, ids as text, tables of single rows, and local agreement.
func TestFence_Tables(t *testing.T) {
	bubble(t, []string{
		`CREATE TABLE stock ("Region" text, id uuid, item int, n int, applied_seq bigint static, PRIMARY KEY (("Region", id), item))`,
		"CREATE TABLE customers (id uuid PRIMARY KEY, orders list<bigint>, from_orders bigint, from_payments bigint)",
	}, func(t *testing.T, w world.World) {
		id := "01930000-0000-7000-8000-000000000001"
		stock := newFence(t, w.Session, inbox.FenceConfig{Keyspace: "outbox", Table: "stock", LocalSerial: true})
		for _, want := range []inbox.Outcome{inbox.Applied, inbox.Duplicate} {
			got, err := stock.Apply(t.Context(), inbox.Event{Key: inbox.Key{"eu", id}, Sequence: 1}, func(b *gocql.Batch) error {
				b.Query(`UPDATE stock SET n = 7 WHERE "Region" = ? AND id = ? AND item = 1`, "eu", id)
				return nil
			})
			if got != want || err != nil {
				t.Errorf("a key of two columns: %s, %v; want %s", got, err, want)
			}
		}
		for _, column := range []string{"from_orders", "from_payments"} { // two sources
			f := newFence(t, w.Session, inbox.FenceConfig{Table: "customers", Column: column})
			for seq := range int64(3) {
				if got, err := f.Apply(t.Context(), inbox.Event{Key: inbox.Key{id}, Sequence: seq + 1}, func(b *gocql.Batch) error {
					b.Query("UPDATE customers SET orders = orders + ? WHERE id = ?", []int64{seq + 1}, id)
					return nil
				}); got != inbox.Applied || err != nil {
					t.Errorf("%s: %s, %v; want applied", column, got, err)
				}
			}
			if e, err := f.Last(t.Context(), inbox.Key{id}); e.Sequence != 3 || err != nil {
				t.Errorf("%s: Last() = %d, %v; want 3", column, e.Sequence, err)
			}
		}
		var list []int64
		if err := w.Session.Query("SELECT orders FROM customers WHERE id = ?", id).Scan(&list); err != nil || len(list) != 6 {
			t.Errorf("the row has %v, %v; want three effects of each source", list, err)
		}
	})
}

// The mark of one source does not protect what an effect read from the fence of another
// source. A condition on it does.
func TestFence_TwoSourcesOfOneSum(t *testing.T) {
	bubble(t, []string{"CREATE TABLE sums (id text, line int, sum int static, from_orders bigint static, from_payments bigint static, PRIMARY KEY (id, line))"}, func(t *testing.T, w world.World) {
		orders := newFence(t, w.Session, inbox.FenceConfig{Table: "sums", Column: "from_orders"})
		payments := newFence(t, w.Session, inbox.FenceConfig{Table: "sums", Column: "from_payments"})
		add := func(f *inbox.Fence, n int, read *int) (inbox.Outcome, error) {
			sum := n
			if read != nil {
				sum += *read
			}
			return f.Apply(t.Context(), inbox.Event{Key: inbox.Key{"a"}, Sequence: 1}, func(b *gocql.Batch) error {
				b.Query("UPDATE sums SET sum = ? WHERE id = 'a' IF sum = ?", sum, read)
				return nil
			})
		}
		if got, err := add(payments, 7, nil); got != inbox.Applied || err != nil {
			t.Fatalf("payment 1 = %s, %v", got, err)
		}
		if got, err := add(orders, 10, nil); got != inbox.Unknown || !errors.Is(err, inbox.ErrCondition) {
			t.Errorf("order 1 with a sum that has changed = %s, %v; want ErrCondition", got, err)
		}
		if e, err := orders.Last(t.Context(), inbox.Key{"a"}); e.Sequence != 0 || err != nil {
			t.Errorf("Last() = %d, %v; want 0", e.Sequence, err)
		}
		read := 7
		if got, err := add(orders, 10, &read); got != inbox.Applied || err != nil {
			t.Errorf("order 1 = %s, %v", got, err)
		}
		var sum int
		if err := w.Session.Query("SELECT sum FROM sums WHERE id = 'a' LIMIT 1").Scan(&sum); err != nil || sum != 17 {
			t.Errorf("the sum is %d, %v; want 17", sum, err)
		}
	})
}

// An effect that deletes all rows by a range keeps the mark.
func TestFence_DeletesAllRows(t *testing.T) {
	bubble(t, []string{totals}, func(t *testing.T, w world.World) {
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		mustApply(t, f, "a", 1, inbox.Applied)
		mustApply(t, f, "a", 2, inbox.Applied)
		got, err := f.Apply(t.Context(), inbox.Event{Key: inbox.Key{"a"}, Sequence: 3}, func(b *gocql.Batch) error {
			b.Query("DELETE FROM totals WHERE id = 'a' AND line >= 0")
			return nil
		})
		if got != inbox.Applied || err != nil {
			t.Fatalf("event 3 = %s, %v", got, err)
		}
		for seq := int64(1); seq <= 3; seq++ {
			mustApply(t, f, "a", seq, inbox.Duplicate)
		}
		if rows := countLines(t, w, "a"); rows != 0 {
			t.Errorf("%d rows are left", rows)
		}
		mustApply(t, f, "a", 4, inbox.Applied)
	})
}

// The mark outlives rows that expire; with a TTL it ends after the last event, and the
// aggregate continues with its next event.
func TestFence_TheMarkHasItsOwnTTL(t *testing.T) {
	bubble(t, []string{totals + " WITH default_time_to_live = 60"}, func(t *testing.T, w world.World) {
		forever := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		hour := newFence(t, w.Session, inbox.FenceConfig{Table: "totals", Order: inbox.FromAny, TTL: time.Hour})
		mustLast := func(f *inbox.Fence, id string, want int64) {
			t.Helper()
			if e, err := f.Last(t.Context(), inbox.Key{id}); e.Sequence != want || err != nil {
				t.Errorf("Last(%s) = %d, %v; want %d", id, e.Sequence, err, want)
			}
		}
		mustApply(t, forever, "forever", 1, inbox.Applied)
		mustApply(t, hour, "hour", 1, inbox.Applied)
		time.Sleep(30 * time.Minute)
		mustApply(t, hour, "hour", 2, inbox.Applied) // the TTL begins again
		time.Sleep(59 * time.Minute)
		mustLast(hour, "hour", 2)
		time.Sleep(2 * time.Minute)
		mustLast(hour, "hour", 0)
		mustApply(t, hour, "hour", 3, inbox.Applied)
		mustLast(forever, "forever", 1)
		if rows := countLines(t, w, "forever"); rows != 0 {
			t.Errorf("%d rows have not expired", rows)
		}
	})
}

// All statements of a fence and of a Once have the same serial consistency. The database
// names it, because no level of this keyspace has a quorum.
func TestLocalSerial_IsTheLevelOfAllStatements(t *testing.T) {
	bubble(t, []string{
		"CREATE KEYSPACE wide WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
		strings.Replace(totals, "totals", "wide.totals", 1), inbox.OnceTable("wide", "mails"),
	}, func(t *testing.T, w world.World) {
		level := regexp.MustCompile(`consistency level for cl (\w+)`)
		for local, want := range map[bool]string{true: "LOCAL_SERIAL", false: "SERIAL"} {
			f := newFence(t, w.Session, inbox.FenceConfig{Keyspace: "wide", Table: "totals", LocalSerial: local})
			o := newOnce(t, w.Session, inbox.OnceConfig{Keyspace: "wide", LocalSerial: local})
			_, applied := f.Apply(t.Context(), inbox.Event{Key: inbox.Key{"a"}, Sequence: 1}, nil)
			_, last := f.Last(t.Context(), inbox.Key{"a"})
			_, _, done := o.Do(t.Context(), "id", func(context.Context) ([]byte, error) { return nil, nil })
			for _, c := range []struct {
				err        error
				statements int
			}{{applied, 2}, {last, 1}, {done, 2}} {
				levels := level.FindAllStringSubmatch(fmt.Sprint(c.err), -1)
				if len(levels) != c.statements || slices.ContainsFunc(levels, func(m []string) bool { return m[1] != want }) {
					t.Errorf("LocalSerial %t: %v; want %d statements at %s", local, c.err, c.statements, want)
				}
			}
		}
	})
}

// Retries of the session's policy do not hide that the first attempt was applied.
func TestFence_IgnoresTheRetryPolicyOfTheSession(t *testing.T) {
	bubble(t, []string{totals}, func(t *testing.T, w world.World) {
		c := scyllatest.Cluster(w.Node, schema.DefaultKeyspace)
		c.RetryPolicy = &gocql.SimpleRetryPolicy{NumRetries: 3}
		s, err := c.CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		defer sessions.Close(s)
		f := newFence(t, s, inbox.FenceConfig{Table: "totals"})
		casTimeout(w, engine.FateApply)
		mustApply(t, f, "a", 1, inbox.Applied)
		mustHave(t, w.Session, "a", 1)
	})
}

// countLines returns the number of rows of totals, without that of the static columns alone.
func countLines(t *testing.T, w world.World, id string) (n int) {
	t.Helper()
	iter := w.Session.Query("SELECT line FROM totals WHERE id = ?", id).Iter()
	for line := new(int); iter.Scan(&line); line = new(int) {
		if line != nil {
			n++
		}
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}
