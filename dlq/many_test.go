package dlq

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

// manyDeadLetters is the number of dead letters of TestStore_ManyDeadLetters: DLQ_DEAD_LETTERS.
func manyDeadLetters(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("DLQ_DEAD_LETTERS"))
	switch {
	case os.Getenv("DLQ_DEAD_LETTERS") != "" && (err != nil || n < 1000):
		t.Fatalf("DLQ_DEAD_LETTERS=%q: write a number of dead letters, at least 1000", os.Getenv("DLQ_DEAD_LETTERS"))
	case err == nil:
		return n
	case testing.Short():
		return 1_000
	}
	return 20_000
}

// listingLimit limits the p95 of a listing's first hundred. It is checked only for a
// million dead letters, because other tests would disturb the measurement.
const listingLimit = 100 * time.Millisecond

// TestStore_ManyDeadLetters fills a store and lists it by every criterion: the result is
// correct, and its time and memory do not depend on the number of dead letters.
func TestStore_ManyDeadLetters(t *testing.T) {
	n := manyDeadLetters(t)
	s := setup(t, WithTimeouts(30*time.Second, time.Minute))
	end := time.Now().UTC().Truncate(time.Hour)
	const span = 28 * 24 * time.Hour
	rare := n / 500
	began := time.Now()
	written, err := parallel(n, func(i int) error {
		l := testDeadLetter(fmt.Sprint("a", i%(n/20)), int64(i+1))
		l.FirstFailedAt = end.Add(-time.Duration(float64(span) * float64(i+1) / float64(n+1)))
		l.Payload = []byte("{}")
		if i%500 == 499 {
			l.ErrorClass, l.EventType, l.Status = "rare", "OrderCancelled", Suspended
		}
		_, err := s.Write(t.Context(), l)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d dead letters in %s: %.0f/s, p95 %s", n, time.Since(began).Round(time.Second), float64(n)/time.Since(began).Seconds(), written[n*95/100])
	day := end.Add(-span / 2)
	for _, tt := range []struct {
		name string
		f    Filter
		want int // of at most 100
	}{
		{"all", Filter{}, 100},
		{"status", Filter{Status: []Status{Suspended}}, min(rare, 100)},
		{"class", Filter{ErrorClass: "rare"}, min(rare, 100)},
		{"common class", Filter{ErrorClass: "record_too_large"}, 100},
		{"type", Filter{EventType: "OrderCancelled"}, min(rare, 100)},
		{"aggregate", Filter{Aggregate: "a7"}, 20},
		{"a day", Filter{Since: day.Add(-24 * time.Hour), Until: day}, min(100, n/28-1)},
		{"class and status", Filter{ErrorClass: "rare", Status: []Status{Suspended, Pending}}, min(rare, 100)},
		{"deep page", Filter{After: Position{FirstFailedAt: day}}, 100},
	} {
		rounds := 40
		if testing.Short() {
			rounds = 5
		}
		took := make([]time.Duration, rounds)
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range took {
			begun := time.Now()
			got := 0
			if err := s.List(t.Context(), tt.f, func(l *DeadLetter) error {
				if !tt.f.matches(l) {
					t.Errorf("%s lists %+v", tt.name, l)
				}
				if got++; got == 100 {
					return ErrStop
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			took[i] = time.Since(begun)
			if got < tt.want || got > 100 {
				t.Fatalf("%s lists %d dead letters, want %d", tt.name, got, tt.want)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		slices.Sort(took)
		p95 := took[rounds*95/100]
		grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		t.Logf("%-16s  p50 %8s  p95 %8s  heap %+.1f MiB", tt.name, took[rounds/2].Round(10*time.Microsecond), p95.Round(10*time.Microsecond), float64(grown)/(1<<20))
		if n >= 1_000_000 && p95 > listingLimit {
			t.Errorf("%s: p95 %s, want under %s", tt.name, p95, listingLimit)
		}
		if grown > 64<<20 { // memory does not grow with the store
			t.Errorf("%s: the heap grew by %d MiB", tt.name, grown>>20)
		}
	}
	begun := time.Now()
	st, err := s.Stats(t.Context())
	if err != nil || st.Open != int64(n) || st.ByStatus[Suspended] != int64(rare) {
		t.Errorf("Stats() = %+v, %v, want %d open", st, err, n)
	}
	t.Logf("stats in %s", time.Since(begun))
	begun = time.Now()
	if tally, err := s.Tally(t.Context(), OpenStatuses, time.Time{}, time.Time{}); err != nil || tally[Suspended] != int64(rare) || tally[Pending] != int64(n-rare) {
		t.Errorf("Tally() = %v, %v", tally, err)
	}
	t.Logf("a tally of open dead letters in %s", time.Since(begun))
}

// A caller that ends its own context while it takes an entry gets the others or an error. After its
// error it gets none.
func TestChains_EndWithTheirCaller(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ls := manyDead(40)
	for i, l := range ls {
		l.Table, l.AggregateID, l.Sequence = testTable, "busy", int64(i+1)
		if _, err := b.Write(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	n := 0
	err := b.Chains(ctx, testTable, func(e ChainEntry) error {
		if n++; n == len(ls)-1 {
			time.Sleep(200 * time.Millisecond) // meanwhile the other buckets, which are empty, are read
			end()
		}
		return nil
	})
	if err == nil && n < len(ls) {
		t.Errorf("%d of %d dead letters, and no error", n, len(ls))
	}
	n, errTaken := 0, errors.New("taken")
	if err := b.Chains(t.Context(), testTable, func(ChainEntry) error { n++; return errTaken }); !errors.Is(err, errTaken) || n != 1 {
		t.Errorf("Chains() = %v after %d calls, want the error of the first", err, n)
	}
}

// A tally reads the lists of its statuses alone.
func TestTally_ReadsItsStatuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ls := manyDead(6)
	for i, l := range ls {
		if l.Status = Pending; i > 1 {
			l.Status = Suspended
		}
		l.FirstFailedAt = l.FirstFailedAt.Add(-time.Duration(i) * 24 * time.Hour)
		if _, err := b.Write(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	hits := b.fault("dead_letter_lookups", engine.OpRead, 0, 0, faults.Effect{Delay: 1})
	if tally, err := b.Tally(t.Context(), []Status{Failed}, time.Time{}, time.Time{}); err != nil || len(tally) != 1 || tally[Failed] != 0 {
		t.Errorf("Tally() = %v, %v", tally, err)
	}
	if n := hits(); n != 0 {
		t.Errorf("%d reads of lists of other statuses", n)
	}
}

// AllChains reads no more dead letters than it may, of one bucket or of many.
func TestAllChains_ReadsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ls := manyDead(1200)
	for i, l := range ls {
		if l.Table = "outbox.orders"; i < 900 {
			l.Table, l.AggregateID, l.Sequence = testTable, "busy", int64(i+1)
		}
	}
	write := func(some []*DeadLetter) {
		t.Helper()
		if _, err := parallel(len(some), func(i int) error { _, err := b.Write(t.Context(), some[i]); return err }); err != nil {
			t.Fatal(err)
		}
	}
	check := func(most, stored int) {
		t.Helper()
		n := 0
		more, err := b.AllChains(t.Context(), most, func(string, ChainEntry) { n++ })
		if err != nil || n != min(most, stored) || more != (most < stored) {
			t.Errorf("of %d dead letters at most %d are %d, more %t, %v", stored, most, n, more, err)
		}
	}
	write(ls[:900])
	for _, most := range []int{100, 600, 899, 900} {
		hits := b.fault("dead_letter_queue", engine.OpRead, 0, 0, faults.Effect{Delay: 1})
		check(most, 900)
		if want := (most + maxLookup - 1) / maxLookup; hits() != want {
			t.Errorf("%d dead letters are read in %d statements, want %d", most, hits(), want)
		}
		b.Node.Faults().Clear()
	}
	write(ls[900:])
	for _, most := range []int{1, 1000, 1199, 1200, 5000} {
		check(most, len(ls))
	}
}

// Payloads reads the first payloads that have the size, also where later ones are larger than the first.
func TestPayloads_LargeOnesAfterSmallOnes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []gocql.UUID
	for i := range 100 {
		l := testDeadLetter("a", int64(i+1))
		if l.Payload = []byte("{}"); i >= 20 {
			l.Payload = make([]byte, 10_000)
		}
		b.mustWrite(t, l)
		ids = append(ids, l.EventID)
	}
	for _, c := range []struct{ size, n, statements int }{
		{100_000, 29, 0}, // 20 of 2 bytes and 9
		{1 << 30, 100, 13},
		{1, 1, 1},
	} {
		hits := b.fault("dead_letter_queue", engine.OpRead, 0, 0, faults.Effect{Delay: 1})
		got, n, err := b.Payloads(t.Context(), ids, c.size)
		if err != nil || n != c.n {
			t.Fatalf("of %d bytes there are %d payloads, %v, want %d", c.size, n, err, c.n)
		}
		for i, id := range ids[:n] {
			want := 2
			if i >= 20 {
				want = 10_000
			}
			if len(got[id].Bytes) != want {
				t.Errorf("payload %d has %d bytes, want %d", i, len(got[id].Bytes), want)
			}
		}
		if c.statements > 0 && hits() != c.statements {
			t.Errorf("%d payloads are read in %d statements, want %d", n, hits(), c.statements)
		}
		b.Node.Faults().Clear()
	}
	var left atomic.Int64
	left.Store(15_000)
	if _, err := b.payloads(t.Context(), ids[20:28], &left); !errors.Is(err, errLargePayloads) {
		t.Errorf("payloads() of more than are left = %v", err)
	}
}
