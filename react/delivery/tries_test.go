package delivery

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gocql/gocql"
)

func TestStore_ListsByPlugin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.saved(t, "one", 1, Delivered)
	b.saved(t, "one", 2, Failed)
	b.saved(t, "two", 3, Delivered)
	moved := b.saved(t, "one", 4, Pending)
	moved.Plugin, moved.State = "elsewhere", Delivered // the rule has another destination now
	if err := b.Save(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	same(t, "by plugin", b.list(t, Filter{Plugin: "to-one"}), "one/e2/failed", "one/e1/delivered")
	same(t, "by plugin and state", b.list(t, Filter{Plugin: "to-one", State: Delivered}), "one/e1/delivered")
	same(t, "by plugin and rule", b.list(t, Filter{Plugin: "to-one", Rule: "two"}))
	same(t, "by the new plugin", b.list(t, Filter{Plugin: "elsewhere"}), "one/e4/delivered")
	same(t, "by an unknown plugin", b.list(t, Filter{Plugin: "nobody"}))
}

// The last attempts are stored with their errors, also those before a repeat;
// lists omit them.
func TestStore_TriesAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.saved(t, "r", 1, Pending)
	long := strings.Repeat("ä", maxTryError)
	for i := range MaxTries + 5 {
		d.Tried(b.now.Add(time.Duration(i)*time.Second), 1500*time.Microsecond, long)
	}
	d.State = Failed
	if err := b.Save(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Repeat(t.Context(), d.ID, "mara", "mended"); err != nil {
		t.Fatal(err)
	}
	got, err := b.Read(t.Context(), d.ID)
	if err != nil {
		t.Fatal(err)
	}
	got.Tried(b.now, 0, "")
	if err := b.Save(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if got, err = b.Read(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
	first, last := got.Tries[0], got.Tries[len(got.Tries)-1]
	if len(got.Tries) != MaxTries || !first.At.Equal(b.now.Add(6*time.Second)) || first.TookMS != 1 || first.Repeat != 0 {
		t.Errorf("%d attempts, the first %+v", len(got.Tries), first)
	}
	if len(first.Error) > maxTryError+len("…") || !utf8.ValidString(first.Error) || !strings.HasSuffix(first.Error, "ä…") {
		t.Errorf("the error of an attempt has %d bytes: %q", len(first.Error), first.Error)
	}
	if want := (Try{At: b.now, Repeat: 1}); !reflect.DeepEqual(last, want) {
		t.Errorf("the last attempt is %+v, want %+v", last, want)
	}
	if err := b.List(t.Context(), Filter{}, func(d *Delivery) error {
		if d.Tries != nil {
			t.Errorf("a list has attempts: %+v", d.Tries)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestStore_RepeatAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone := gocql.UUID{1}
	var ids []gocql.UUID
	tally := NewTally()
	for i := range 40 {
		d := b.saved(t, "r", i, []State{Failed, Delivered, Pending, Failed}[i%4])
		d.Error = fmt.Sprint("error ", i)
		ids = append(ids, d.ID)
		tally.Add(d)
	}
	if n := len(tally.ByError); tally.Deliveries != 40 || tally.ByState["failed"] != 20 || tally.ByPlugin["to-r"] != 40 || n != maxCounted+1 || tally.ByError[otherErrors] != 20 {
		t.Errorf("the tally is %+v with %d errors", tally, n)
	}
	got, err := b.RepeatAll(t.Context(), append(ids, gone), "mara", "mended")
	if want := (Asking{Asked: 30, Pending: 10, Missing: 1}); err != nil || got != want {
		t.Errorf("RepeatAll() = %+v, %v, want %+v", got, err, want)
	}
	asked, err := b.Repeats(t.Context(), "r", gocql.UUID{}, 100)
	if err != nil || len(asked) != 30 {
		t.Errorf("%d repeats requested, %v", len(asked), err)
	}
	if got, err = b.RepeatAll(t.Context(), ids, "mara", "twice"); err != nil || got.Pending != 40 {
		t.Errorf("again: %+v, %v", got, err)
	}
	found, err := b.ReadAll(t.Context(), append([]gocql.UUID{gone}, ids...))
	if err != nil || len(found) != 40 || found[0].ID != ids[0] || found[39].ID != ids[39] || found[0].Reason != "mended" {
		t.Errorf("ReadAll() = %d, %v", len(found), err)
	}
}

func TestStore_Reports(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := b.now.Add(-time.Minute)
	def := Definition{Plugin: "hook", Kind: "target", Topics: []string{"a", "b"}, When: "data.n > 1", Order: "aggregate", Attempts: 8, TimeoutSeconds: 10, Concurrency: 4, Queue: 1000}
	mine := []Report{
		{Rule: "one", Instance: "h/1", Definition: def, Progress: Progress{State: Running, StartedAt: at, Waiting: 3, Delivered: 7, LastError: strings.Repeat("x", 600), LastErrorAt: &at}},
		{Rule: "two", Instance: "h/1", Definition: def, Progress: Progress{State: Running, StartedAt: at}},
	}
	for range 2 {
		if err := b.Report(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
	}
	other := []Report{{Rule: "one", Instance: "h/2", Definition: def, Progress: Progress{State: Stopped, StartedAt: at}}}
	if err := b.Report(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	got, err := b.Reports(t.Context())
	if err != nil || len(got) != 3 {
		t.Fatalf("Reports() = %d, %v", len(got), err)
	}
	for i, want := range []Report{mine[0], other[0], mine[1]} {
		want.At = b.now
		if !reflect.DeepEqual(got[i], want) {
			t.Errorf("report %d is %+v, want %+v", i, got[i], want)
		}
	}
	if n := len(got[0].LastError); n != maxTryError+len("…") {
		t.Errorf("the last error has %d bytes", n)
	}
}
