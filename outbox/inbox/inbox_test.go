package inbox

import (
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// after is decided by the order, the event and the mark alone.
func TestStep_After(t *testing.T) {
	t.Parallel()
	none := int64(-1)
	for _, c := range []struct {
		order          Order
		sequence, have int64
		want           condition
	}{
		{FromOne, 1, none, condition{kind: absent}},
		{FromOne, 2, none, condition{gap, 1}},
		{FromOne, 1, 0, condition{equal, 0}}, // a mark that somebody set to 0
		{FromOne, 3, 2, condition{equal, 2}},
		{FromOne, 3, 1, condition{gap, 2}},
		{FromOne, 3, 3, condition{kind: finished}},
		{FromOne, 3, 9, condition{kind: finished}},
		{FromAny, 7, none, condition{kind: absent}},
		{FromAny, 7, 6, condition{equal, 6}},
		{FromAny, 7, 5, condition{gap, 6}},
		{Increasing, 7, none, condition{kind: absent}},
		{Increasing, 7, 5, condition{less, 7}},
		{Increasing, 7, 7, condition{kind: finished}},
	} {
		have := &c.have
		if c.have == none {
			have = nil
		}
		if got := (step{Event: Event{Sequence: c.sequence}, order: c.order}).after(have); got != c.want {
			t.Errorf("order %d, event %d after %d: %v, want %v", c.order, c.sequence, c.have, got, c.want)
		}
	}
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
