package inbox

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// after is decided by the order, the event and the mark alone.
func TestStep_After(t *testing.T) {
	t.Parallel()
	const none = -1
	at := func(sequence, epoch int64) (m mark) {
		if sequence != none {
			m.sequence = &sequence
		}
		if epoch != none {
			m.epoch = &epoch
		}
		return m
	}
	finish, end, gapOf := condition{kind: finished}, condition{kind: ended}, func(want int64) condition { return condition{kind: gap, want: want} }
	exactly := func(m mark) condition { return condition{kind: equal, mark: m} }
	for _, c := range []struct {
		order           Order
		sequence, epoch int64
		have            mark
		want            condition
	}{
		{FromOne, 1, 0, at(none, none), exactly(at(none, none))},
		{FromOne, 2, 0, at(none, none), gapOf(1)},
		{FromOne, 1, 0, at(0, none), exactly(at(0, none))}, // a mark that somebody set to 0
		{FromOne, 3, 0, at(2, none), exactly(at(2, none))},
		{FromOne, 3, 0, at(2, 0), exactly(at(2, 0))},
		{FromOne, 3, 0, at(1, none), gapOf(2)},
		{FromOne, 3, 0, at(3, none), finish},
		{FromOne, 3, 0, at(9, 0), finish},
		{FromAny, 7, 0, at(none, none), exactly(at(none, none))},
		{FromAny, 7, 0, at(6, 0), exactly(at(6, 0))},
		{FromAny, 7, 0, at(5, 0), gapOf(6)},
		{Increasing, 7, 0, at(none, none), exactly(at(none, none))},
		{Increasing, 7, 0, at(5, none), condition{kind: less, mark: at(none, none)}},
		{Increasing, 7, 0, at(5, 0), condition{kind: less, mark: at(none, 0)}},
		{Increasing, 7, 0, at(7, 0), finish},

		// An epoch is compared before the number.
		{FromOne, 1, 5, at(none, none), exactly(at(none, none))},
		{FromOne, 2, 5, at(none, none), gapOf(1)},
		{FromOne, 4, 5, at(9, none), exactly(at(9, none))}, // after 5 to 9, which a restore has undone
		{FromOne, 1, 5, at(9, 0), exactly(at(9, 0))},
		{FromOne, 9, 5, at(9, 0), exactly(at(9, 0))},
		{FromOne, 10, 5, at(9, 0), exactly(at(9, 0))}, // nothing was undone
		{FromOne, 11, 5, at(9, 0), gapOf(10)},
		{FromOne, 5, 5, at(4, 5), exactly(at(4, 5))},
		{FromOne, 6, 5, at(4, 5), gapOf(5)},
		{FromOne, 4, 5, at(4, 5), finish},
		{FromOne, 5, 0, at(4, 5), end},
		{FromOne, 9, 3, at(4, 5), end},
		{FromOne, 4, 9, at(6, 5), exactly(at(6, 5))},
		{FromAny, 4, 5, at(9, none), exactly(at(9, none))},
		{FromAny, 12, 5, at(9, none), gapOf(10)},
		{FromAny, 9, 0, at(4, 5), end},
		{Increasing, 4, 5, at(9, none), exactly(at(9, none))},
		{Increasing, 20, 5, at(9, 0), exactly(at(9, 0))},
		{Increasing, 20, 5, at(9, 5), condition{kind: less, mark: at(none, 5)}},
		{Increasing, 20, 0, at(9, 5), end},
	} {
		s := step{Event: Event{Sequence: c.sequence, Epoch: c.epoch}, order: c.order}
		if got := s.after(c.have); !got.is(c.want) || got.want != c.want.want {
			t.Errorf("order %d, event %d of epoch %d after %s: %s, want %s", c.order, c.sequence, c.epoch, c.have, got, c.want)
		}
	}
}

func (m mark) String() string {
	text := func(n *int64) string {
		if n == nil {
			return "null"
		}
		return strconv.FormatInt(*n, 10)
	}
	return text(m.sequence) + " of epoch " + text(m.epoch)
}

func (c condition) String() string {
	return fmt.Sprintf("kind %d, mark %s, want %d", c.kind, c.mark, c.want)
}

// An id that is not a UUID is refused before a statement is sent.
func TestFence_CheckKey(t *testing.T) {
	t.Parallel()
	const id = "01930000-0000-7000-8000-000000000001"
	uuid, _ := gocql.ParseUUID(id)
	f := &Fence{keys: []string{"region", "id"}, table: &table{columns: map[string]column{"region": {typ: "text"}, "id": {typ: "uuid"}}}}
	for _, c := range []struct {
		key Key
		ok  bool
	}{{Key{"eu", id}, true}, {Key{"eu", outbox.IDFromText(id)}, true}, {Key{"eu", outbox.IDFromInt(7)}, false}, {Key{"eu", uuid}, true}, {Key{"eu", "order 7"}, false}, {Key{"eu", ""}, false}, {Key{id}, false}, {nil, false}} {
		if err := f.checkKey(c.key); (err == nil) != c.ok {
			t.Errorf("checkKey(%v) = %v", c.key, err)
		}
	}
}

func TestOutcome_String(t *testing.T) {
	t.Parallel()
	for o, want := range map[Outcome]string{Unknown: "unknown", Applied: "applied", Duplicate: "duplicate"} {
		if o.String() != want {
			t.Errorf("%d = %s, want %s", o, o, want)
		}
	}
}
