package dlq

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func (b *fixture) listRequests(t testing.TB) []Request {
	t.Helper()
	rs, err := b.Requests(t.Context(), testTable, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// An operator's change notifies the relay once, with the dead letter after the change.
func TestRequests_ReportChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if got := b.listRequests(t); len(got) != 0 {
		t.Fatalf("Requests() = %+v, want none", got)
	}
	for _, a := range []Action{ActionReplay, ActionDiscard, ActionUnblock, ActionSuspend, ActionResolve} {
		id := b.bring(t, Pending)
		if err := b.do(t, id, a); err != nil {
			t.Fatal(err)
		}
		for range 2 { // until it is done
			got := b.listRequests(t)
			if len(got) != 1 || got[0].EventID != id || got[0].Action != a || got[0].AggregateID != "a" || got[0].Actor != eve.Name ||
				got[0].Entry.Status != transitions[a][Pending][0] || got[0].Entry.Unblocked != (a == ActionUnblock) {
				t.Fatalf("Requests() after %s = %+v", a, got)
			}
		}
		for _, r := range b.listRequests(t) {
			if err := b.Done(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.listRequests(t); len(got) != 0 {
			t.Errorf("Requests() after Done = %+v", got)
		}
	}
	// The relay's own changes make no requests.
	id := b.bring(t, Processing)
	if err := b.Unclaim(t.Context(), id, me, ""); err != nil {
		t.Fatal(err)
	}
	if got := b.listRequests(t); len(got) != 0 {
		t.Errorf("Requests() after the relay's change = %+v", got)
	}
	if got, err := b.Requests(t.Context(), "shop.outbox", nil); err != nil || len(got) != 0 {
		t.Errorf("Requests() of another table = %+v, %v", got, err)
	}
}

// An operator's process crashes between the request and the change: the relay receives
// no request, and the row is removed.
func TestRequests_WithoutTheirChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.bring(t, Suspended)
	l := b.mustRead(t, id)
	if err := b.request(t.Context(), &l, ActionReplay, "eve"); err != nil {
		t.Fatal(err)
	}
	if got := b.listRequests(t); len(got) != 0 {
		t.Errorf("Requests() = %+v before the change", got)
	}
	rows := func() (n int) {
		if err := b.Session.Query("SELECT COUNT(*) FROM dead_letter_requests").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if rows() != 1 {
		t.Error("the request was removed immediately")
	}
	b.clock.advance(requestGrace + time.Second)
	if got := b.listRequests(t); len(got) != 0 || rows() != 0 {
		t.Errorf("Requests() = %+v, and %d are left", got, rows())
	}
}

// A request whose change is late, or whose operator's clock is behind, is seen
// all the same: done ones are passed over by time, with a margin, and from time
// to time all are read.
func TestRequests_FromClocksThatDiffer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	slow := b.another(t)
	behind := &clock{b.clock.at, b.clock.node}
	slow.db.Clock = behind
	for _, by := range []time.Duration{0, requestOverlap - time.Second, requestOverlap + time.Hour} {
		// A done request moves the mark to now.
		first := b.bring(t, Pending)
		if err := b.Discard(t.Context(), first, eve); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.listRequests(t) {
			if err := b.Done(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		behind.at = b.clock.at.Add(-by)
		id := b.bring(t, Pending)
		if err := slow.Discard(t.Context(), id, eve); err != nil {
			t.Fatal(err)
		}
		if by > requestOverlap {
			b.clock.advance(requestSweep)
		}
		got := b.listRequests(t)
		if len(got) != 1 || got[0].EventID != id {
			t.Errorf("a clock behind by %s: Requests() = %+v", by, got)
		}
		for _, r := range got {
			if err := b.Done(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// An operator's clock is behind, and the relay polls between the request and its
// change: the request counts as young.
func TestRequests_OfAClockThatIsBehindAreSeenAfterTheirChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	slow := b.another(t)
	slow.db.Clock = world.Clock(func() time.Time { return b.clock.Now().Add(-requestOverlap) })
	id := b.bring(t, Suspended)
	l := b.mustRead(t, id)
	if err := slow.request(t.Context(), &l, ActionReplay, "eve"); err != nil {
		t.Fatal(err)
	}
	if got := b.listRequests(t); len(got) != 0 {
		t.Errorf("Requests() = %+v before the change", got)
	}
	if _, err := slow.change(t.Context(), id, ActionReplay, func(*DeadLetter) (planned, error) {
		return planned{to: Pending, change: func(*DeadLetter) {}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := b.listRequests(t); len(got) != 1 || got[0].EventID != id {
		t.Errorf("Requests() = %+v, want that of the change", got)
	}
}

// Without the request there is no change, so the relay receives every change.
func TestRequests_ComeFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.bring(t, Pending)
	b.fault("dead_letter_requests", engine.OpWrite, 0, 0, casFaults["unavailable"])
	impatient := b.another(t, WithTimeouts(400*time.Millisecond, 1200*time.Millisecond))
	if err := impatient.Discard(t.Context(), id, eve); err == nil {
		t.Error("Discard() = nil")
	}
	if l := b.mustRead(t, id); l.Status != Pending {
		t.Errorf("it is %s", l.Status)
	}
}

// Many requests take few queries.
func TestRequests_Many(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ls := manyDead(250)
	if _, err := parallel(len(ls), func(i int) error {
		if _, err := b.Write(t.Context(), ls[i]); err != nil {
			return err
		}
		return b.Discard(t.Context(), ls[i].EventID, eve)
	}); err != nil {
		t.Fatal(err)
	}
	rs := b.listRequests(t)
	if len(rs) != len(ls) {
		t.Fatalf("%d requests, want %d", len(rs), len(ls))
	}
	if err := b.Done(t.Context(), rs...); err != nil {
		t.Fatal(err)
	}
	if got := b.listRequests(t); len(got) != 0 {
		t.Errorf("%d requests after Done", len(got))
	}
}

// The requests of other relays, however many, do not delay own ones.
func TestRequests_OfOthersKeepNothingBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.bring(t, Suspended)
	l := b.mustRead(t, id)
	begin := time.Now().Add(-5 * time.Minute)
	write := func(at time.Time, aggregate string) {
		t.Helper()
		if err := b.Session.Query("INSERT INTO dead_letter_requests (table_name, id, event_id, aggregate_id, action, version, actor) VALUES (?, ?, ?, ?, 'replay', ?, 'eve')",
			testTable, gocql.UUIDFromTime(at), id, aggregate, l.Version).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	const others = 2*maxRequests + 100
	for i := range others {
		write(begin.Add(time.Duration(i)*time.Millisecond), "another")
	}
	write(begin.Add(time.Minute), "mine")
	write(begin.Add(2*time.Minute), "another")
	mine := func(r *Request) bool { return r.AggregateID == "mine" }
	for range 2 {
		got, err := b.Requests(t.Context(), testTable, mine)
		if err != nil || len(got) != 1 || got[0].AggregateID != "mine" {
			t.Fatalf("Requests() = %d requests, %v; want the one that is mine", len(got), err)
		}
	}
	if from := b.marks.from(testTable, time.Now()); !from.Equal(b.marks.mu.by[testTable].done.Add(-requestOverlap)) {
		t.Errorf("the requests of others are read again from %s", from)
	}
	if got, err := b.Requests(t.Context(), testTable, nil); err != nil || len(got) != maxRequests {
		t.Errorf("Requests() of all = %d, %v; want %d", len(got), err, maxRequests)
	}
}
