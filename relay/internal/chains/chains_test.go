package chains

import (
	"slices"
	"testing"

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
	if !slices.Equal(got, []int64{1, 2, 3, 4, 5}) || d.due[0].Head().Seq != 1 {
		t.Errorf("the chain is %v with %d due first, want 1 to 5", got, d.due[0].Head().Seq)
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
