package chains

import (
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Dead letters of an aggregate are replayed in the order of sequence numbers, not of writes.
func TestSet_AChainIsInTheOrderOfNumbers(t *testing.T) {
	t.Parallel()
	d := New(nil)
	key := outbox.IDFromUUID(gocql.UUID{1})
	for _, seq := range []int64{3, 1, 5, 2, 4} {
		d.Add(key, true, Ref{ID: gocql.UUID{2, byte(seq)}, Seq: seq, At: AtOnce}, false)
	}
	var got []int64
	for _, ref := range d.chains[key.UUID()].DeadLetters {
		got = append(got, ref.Seq)
	}
	if !slices.Equal(got, []int64{1, 2, 3, 4, 5}) || d.Front(time.Now()).Head().Seq != 1 {
		t.Errorf("the chain is %v with %d due first, want 1 to 5", got, d.Front(time.Now()).Head().Seq)
	}
}

// An aggregate is blocked while an event waits behind its dead letter, not by every dead letter.
func TestSet_SizeCountsAggregatesWithBlockedEvents(t *testing.T) {
	t.Parallel()
	d := New(nil)
	add := func(aggregate, event byte, strict bool) {
		d.Add(outbox.IDFromUUID(gocql.UUID{aggregate}), strict, Ref{ID: gocql.UUID{aggregate, event}, Seq: int64(event), At: AtOperator}, false)
	}
	want := func(when string, want int) {
		t.Helper()
		if _, _, got := d.Size(); got != want {
			t.Errorf("%s: %d aggregates are blocked, want %d", when, got, want)
		}
	}
	add(1, 1, true)
	add(2, 1, true)
	want("two dead letters of two aggregates", 0)
	add(1, 2, true)
	add(1, 3, true)
	want("two events wait behind one", 1)
	add(3, 1, false)
	add(3, 2, false)
	want("without an order", 1)
	d.Remove(gocql.UUID{1, 1})
	want("the third one waits behind the second one", 1)
	d.Loosen(gocql.UUID{1, 2}, AtOperator)
	want("released", 0)
	d.Remove(gocql.UUID{1, 3})
	d.Remove(gocql.UUID{2, 1})
	want("settled", 0)
}

// Of the chains that are due, chains that an operator requested come first, then higher priorities,
// then the oldest failures; the others come when their time does.
func TestSet_DueChainsByPriorityThenAge(t *testing.T) {
	t.Parallel()
	d, now := New(nil), time.UnixMilli(1_000_000)
	add := func(n byte, at int64, ref Ref) {
		ref.ID, ref.At = gocql.UUID{n}, at
		d.Add(outbox.IDFromUUID(ref.ID), false, ref, false)
	}
	due := now.UnixMilli()
	add(1, due-50, Ref{First: 10})
	add(2, AtBreaker, Ref{First: 30})
	add(3, due, Ref{First: 20, Priority: 5})
	add(4, due+1, Ref{First: 1, Priority: 100})
	add(5, AtOnce, Ref{First: 40, Priority: -100, Asked: true})
	add(6, AtBreaker, Ref{First: 5, Priority: 5})
	add(7, AtOperator, Ref{First: 1, Priority: 100})
	next := func(now time.Time) byte {
		c := d.Front(now)
		if c == nil {
			return 0
		}
		if due, _ := c.IsDue(now); due {
			d.Remove(c.Head().ID)
		}
		return c.Key[0]
	}
	if first := next(now); first != 5 {
		t.Errorf("first is %d, want 5, which an operator requested", first)
	}
	d.Change(gocql.UUID{2}, func(r *Ref) { r.Priority = 7 }) // while it is due
	var got []byte
	for range 5 {
		got = append(got, next(now))
	}
	if want := []byte{2, 6, 3, 1, 4}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v, of which the last is not due", got, want)
	}
	later := now.Add(time.Second)
	if got := []byte{next(later), next(later)}; !slices.Equal(got, []byte{4, 0}) {
		t.Errorf("a second later the order is %v, want 4 and no other", got)
	}
}
