package older

import (
	"fmt"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Aggregates behind the scan, ahead of it, and released ones.
func TestRows(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	o := New(outbox.DefaultTable, &checkpoint.Scan{Until: until, Ranges: 4, Done: []int{2}}, cdclog.Ring, func() int { return 2 })
	var ids [4][]outbox.ID
	token := func(id outbox.ID) int64 { return rows.Token(outbox.DefaultTable, id) }
	for n := 0; len(ids[0]) < 3 || len(ids[1]) < 3 || len(ids[2]) < 3 || len(ids[3]) < 3; n++ {
		id := relaytest.Event(n, 1, "x").AggregateID
		if n%2 == 0 {
			id = outbox.IDFromText(fmt.Sprint("order ", n))
		}
		r := cdclog.Ring.FindPart(token(id), 4)
		ids[r] = append(ids[r], id)
	}
	a, b := ids[0][0], ids[0][1]
	if token(a) > token(b) {
		a, b = b, a
	}
	if !o.Behind(a) || o.Behind(ids[2][0]) {
		t.Error("behind() does not match the completed ranges")
	}
	o.Scanned(a)
	if o.Behind(a) || !o.Behind(b) {
		t.Error("the scan has passed a, and not b")
	}
	o.Note(b, 3)
	if !o.Behind(b) || o.AcceptedUpTo(b) != 3 {
		t.Errorf("behind() = %t, aheadOf() = %d, want true and 3", o.Behind(b), o.AcceptedUpTo(b))
	}
	o.Passed(b)
	o.Passed(ids[3][0])
	if ok, wait := o.Room(); o.Behind(b) || ok || wait == nil {
		t.Error("room for another aggregate, want none: two are ahead")
	}
	_, wait := o.Room()
	o.Close(0)
	<-wait
	if ok, _ := o.Room(); !ok || o.Behind(b) || o.IsOpen(0) || !o.IsOpen(1) {
		t.Error("close() did not end the range")
	}
	e := relaytest.Event(0, 2, "x")
	e.AggregateID = ids[3][1]
	us := until.UnixMicro()
	for _, tt := range []struct {
		seq, written int64
		l            dedup.Line
		known, gaps  bool
		want         bool
	}{
		{2, us + 1, dedup.Line{}, false, false, true},
		{1, us + 1, dedup.Line{}, false, false, false},
		{1, us, dedup.Line{}, false, false, true},
		{2, us + 1, dedup.Line{First: 1, Next: 2}, true, false, false},
		{2, us + 1, dedup.Line{First: 1, Next: 2}, true, true, true},
		{7, us + 1, dedup.Line{First: 5, Next: 7}, true, false, true},
	} {
		e.Sequence = tt.seq
		if got := o.HoldsBack(&e, tt.written, tt.l, tt.known, tt.gaps); got != tt.want {
			t.Errorf("holdsBack(seq %d, %+v) = %t, want %t", tt.seq, tt, got, tt.want)
		}
	}
}

// Events found in the topics are kept for the first ranges, as many as fit, and at least
// for one.
func TestFound_IsBounded(t *testing.T) {
	t.Parallel()
	row := &checkpoint.Scan{Until: time.Now(), Ranges: 16, Done: []int{0}}
	o := New(outbox.DefaultTable, row, cdclog.Ring, func() int { return 10 })
	f := NewFound(o, 20)
	all := relaytest.Events(200, 1, "x")
	for range 2 { // the second time all are present
		for i := range all {
			f.Take(rows.Token(outbox.DefaultTable, all[i].AggregateID), all[i].ID.UUID())
		}
	}
	if f.Ranges >= row.Ranges || f.Ranges < 2 {
		t.Fatalf("%d ranges are known, want some of %d", f.Ranges, row.Ranges)
	}
	kept := 0
	for _, e := range all {
		r := cdclog.Ring.FindPart(rows.Token(outbox.DefaultTable, e.AggregateID), row.Ranges)
		if got, want := o.Known(e.AggregateID, e.ID, 0), r > 0 && r < f.Ranges; got != want {
			t.Errorf("Known(event of range %d) = %t, want %t", r, got, want)
		} else if got {
			kept++
		}
	}
	if kept != f.Kept || kept > f.most && f.Ranges > 2 {
		t.Errorf("%d events are kept and %d counted, want at most %d", kept, f.Kept, f.most)
	}
}
