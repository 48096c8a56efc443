package dlq

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

func (b *fixture) listAll(t testing.TB, f Filter) []DeadLetter {
	t.Helper()
	var out []DeadLetter
	if err := b.List(t.Context(), f, func(l *DeadLetter) error { out = append(out, *l); return nil }); err != nil {
		t.Fatalf("List(%+v) = %v", f, err)
	}
	return out
}

// Listings and stats match a full scan.
func TestList_IsWhatAScanFinds(t *testing.T) {
	t.Parallel()
	b, rnd := setup(t), seeds.Rand(t)
	classes, types := []string{"breaker_open", "record_too_large", ""}, []string{"OrderCreated", "OrderCancelled"}
	tables, tags := []string{testTable, "subscription.inventory"}, []string{"night", "vip", "team:a"}
	start := b.clock.at
	n, filters := 900, 40
	if testing.Short() {
		n, filters = 300, 15
	}
	ls := make([]*DeadLetter, 0, n)
	all := make([]gocql.UUID, 0, cap(ls))
	for i := range cap(ls) {
		l := testDeadLetter(fmt.Sprint("a", rnd.IntN(30)), int64(i+1))
		l.ErrorClass, l.EventType = classes[rnd.IntN(len(classes))], types[min(rnd.IntN(8), 1)]
		l.FirstFailedAt = start.Add(time.Duration(rnd.IntN(6*3600)) * time.Second)
		if i < n/2 { // a burst, many in one millisecond
			l.FirstFailedAt = start.Add(time.Hour + time.Duration(rnd.IntN(20))*time.Millisecond)
		}
		l.Status = []Status{Pending, Blocked, Suspended}[rnd.IntN(3)]
		l.ErrorText = fmt.Sprint("Text ", i%3)
		l.Table, l.Priority, l.Tags = tables[rnd.IntN(2)], rnd.IntN(5)-2, tags[rnd.IntN(3):][:rnd.IntN(2)]
		ls, all = append(ls, l), append(all, l.EventID)
	}
	if _, err := parallel(len(ls), func(i int) error { _, err := b.Write(t.Context(), ls[i]); return err }); err != nil {
		t.Fatal(err)
	}
	some := rnd.Perm(len(all))[:n/3]
	class, labels := make([]string, len(some)), make([]Labels, len(some))
	for n := range class {
		class[n] = classes[rnd.IntN(len(classes))]
		labels[n] = Labels{Priority: new(rnd.IntN(5) - 2), AddTags: tags[:rnd.IntN(2)], RemoveTags: tags[1:][:rnd.IntN(3)]}
	}
	_, _ = parallel(len(some), func(n int) error {
		i := some[n]
		switch n % 5 {
		case 4:
			_ = b.Set(t.Context(), all[i], labels[n], eve)
		case 0:
			_, _ = b.Claim(t.Context(), all[i], me, time.Hour)
		case 1:
			_ = b.Discard(t.Context(), all[i], eve)
		case 2:
			if _, err := b.Claim(t.Context(), all[i], me, time.Hour); err == nil {
				_, _ = b.Fail(t.Context(), all[i], me, Failure{Class: class[n], Final: n%8 < 4})
			}
		case 3:
			_ = b.Replay(t.Context(), all[i], eve)
		}
		return nil
	})
	deadLetters := make([]DeadLetter, len(all))
	if _, err := parallel(len(all), func(i int) (err error) { deadLetters[i], err = b.Read(t.Context(), all[i]); return err }); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(deadLetters, func(x, y DeadLetter) int {
		if c := y.FirstFailedAt.Compare(x.FirstFailedAt); c != 0 {
			return c
		}
		return slices.Compare(x.EventID[:], y.EventID[:])
	})
	for i := range filters {
		var f Filter
		if i > 0 {
			for rnd.IntN(2) == 0 {
				f.Status = append(f.Status, Statuses[rnd.IntN(len(Statuses))])
			}
			if rnd.IntN(2) == 0 {
				f.ErrorClass = classes[rnd.IntN(2)]
			}
			if rnd.IntN(3) == 0 {
				f.EventType = types[rnd.IntN(2)]
			}
			if rnd.IntN(5) == 0 {
				f.Aggregate = fmt.Sprint("a", rnd.IntN(31))
			}
			if rnd.IntN(3) == 0 {
				f.Table = tables[rnd.IntN(2)]
			}
			for _, tag := range tags {
				if rnd.IntN(5) == 0 {
					f.Tags = append(f.Tags, tag)
				}
			}
			if rnd.IntN(4) == 0 {
				f.MinPriority = new(rnd.IntN(5) - 2)
			}
			if rnd.IntN(4) == 0 {
				f.Text = []string{"TEXT 1", "no such text", strings.ToUpper(types[0]), "a1"}[rnd.IntN(4)]
			}
			if rnd.IntN(3) == 0 {
				f.Since = start.Add(time.Duration(rnd.IntN(4*3600)) * time.Second)
			}
			if rnd.IntN(3) == 0 {
				f.Until = start.Add(4*time.Hour + time.Duration(rnd.IntN(3*3600))*time.Second)
			}
		}
		var want []gocql.UUID
		for _, l := range deadLetters {
			if f.matches(&l) {
				want = append(want, l.EventID)
			}
		}
		var got []gocql.UUID
		// In pages, each from where the last one ended.
		page := 10 + rnd.IntN(500)
		for more := true; more; {
			more = false
			n := 0
			err := b.List(t.Context(), f, func(l *DeadLetter) error {
				if n == page {
					more = true
					return ErrStop
				}
				n++
				got = append(got, l.EventID)
				f.After = l.Position()
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("List(%+v) by %d has %d dead letters, want %d, or in another order", f, page, len(got), len(want))
		}
	}
	st, err := b.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Stats{ByStatus: map[Status]int64{}, OpenByClass: map[string]int64{}, OpenByType: map[string]int64{}, OpenByTable: map[string]int64{}}
	for _, s := range Statuses {
		want.ByStatus[s] = 0
	}
	for _, l := range deadLetters {
		want.ByStatus[l.Status]++
		if l.Status.Open() {
			want.Open++
			want.OpenByClass[l.ErrorClass]++
			want.OpenByType[l.EventType]++
			want.OpenByTable[l.Table]++
			if want.Oldest.IsZero() || l.FirstFailedAt.Before(want.Oldest) {
				want.Oldest = l.FirstFailedAt
			}
		}
	}
	if fmt.Sprint(st) != fmt.Sprint(want) {
		t.Errorf("Stats() = %+v, want %+v", st, want)
	}
}

// A text is found, case-insensitive, in the error, the event type and the aggregate id, and
// nowhere else.
func TestFilter_Text(t *testing.T) {
	t.Parallel()
	l := testDeadLetter("Customer-7", 1)
	l.ErrorClass, l.ErrorCode, l.ErrorText, l.EventType, l.Topic = "record_too_large", "MESSAGE_TOO_LARGE", "größer als ERLAUBT", "OrderCreated", "elsewhere"
	for text, want := range map[string]bool{
		"": true, "TOO_LARGE": true, "message_too": true, "GRÖSSER": false, "GRÖßER ALS": true, "erlaubt": true, "ordercreated": true, "customer-7": true,
		"elsewhere": false, "erlaubtordercreated": false, l.EventID.String(): false,
	} {
		f := Filter{Text: text}
		if got := f.matches(l); got != want {
			t.Errorf("%q is found: %v, want %v", text, got, want)
		}
		if f.Empty() != (text == "") {
			t.Errorf("Empty() = %v for %q", f.Empty(), text)
		}
	}
	if err := (&Filter{Text: strings.Repeat("ü", MaxText)}).Validate(); err != nil {
		t.Errorf("the longest text: %v", err)
	}
	if err := (&Filter{Text: strings.Repeat("x", MaxText+1)}).Validate(); err == nil || !strings.Contains(err.Error(), "text of 201 characters") {
		t.Errorf("a text that is too long: %v", err)
	}
}

// Listings skip and remove the entries that a crash left.
func TestList_RemovesStaleEntries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.bring(t, Resolved)
	l := b.mustRead(t, id)
	stale := l
	stale.Status, stale.Version = Pending, l.Version
	if err := b.lists.add(t.Context(), listed{&stale, listKeys(&stale), true}); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Filter{{Status: []Status{Pending}}, {ErrorClass: l.ErrorClass, Status: []Status{Pending}}, {EventType: l.EventType, Status: []Status{Pending}}, {Table: l.Table, Status: []Status{Pending}}} {
		if got := b.listAll(t, f); len(got) != 0 {
			t.Errorf("List(%+v) = %+v, want none", f, got)
		}
	}
	for _, f := range []Filter{{ErrorClass: l.ErrorClass}, {EventType: l.EventType}, {Table: l.Table}} {
		if got := b.listAll(t, f); len(got) != 1 {
			t.Errorf("List(%+v) has %d, want 1", f, len(got))
		}
	}
	b.mustBeListed(t, id)
}

// One process crashed before it stored the dead letter, and another wrote it later:
// there are entries at two times, and the dead letter is listed once.
func TestList_ContainsADeadLetterOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l, err := b.newDeadLetter(testDeadLetter("a", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.lists.add(t.Context(), listed{l, listKeys(l), true}); err != nil {
		t.Fatal(err)
	}
	b.clock.advance(time.Hour)
	between := b.bring(t, Pending)
	b.clock.advance(time.Hour)
	again := *l
	again.FirstFailedAt = time.Time{}
	b.mustWrite(t, &again)
	for range 2 {
		if got := b.listAll(t, Filter{}); len(got) != 2 || got[0].EventID != l.EventID || got[1].EventID != between {
			t.Errorf("List() has %d dead letters, want two, each once", len(got))
		}
	}
}

func TestList_RefusesBadFilters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, f := range []Filter{{Status: []Status{"dead"}}, {Since: b.clock.at, Until: b.clock.at}} {
		if err := b.List(t.Context(), f, func(*DeadLetter) error { return nil }); err == nil {
			t.Errorf("List(%+v) = nil, want an error", f)
		}
	}
}
