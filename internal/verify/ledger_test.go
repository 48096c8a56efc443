package verify

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/verify/internal/compact"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// id returns a UUID of two numbers.
func id(a, b int) (u gocql.UUID) {
	for i := range 4 {
		u[i] = byte(a >> (24 - 8*i))
		u[12+i] = byte(b >> (24 - 8*i))
	}
	u[6] = 0x70
	return u
}

// aggregateID is the id of an aggregate: every other one is a text.
func aggregateID(a int) outbox.ID {
	if a%2 == 1 {
		return outbox.IDFromText(fmt.Sprintf("Käufer/%d", a))
	}
	return outbox.IDFromUUID(id(a, 0))
}

// aggregateNumber is the reverse of aggregateID.
func aggregateNumber(id outbox.ID) (a int) {
	if !id.IsUUID() {
		_, _ = fmt.Sscanf(id.String(), "Käufer/%d", &a)
		return a
	}
	u := id.UUID()
	return int(u[2])<<8 | int(u[3])
}

func row(aggregate, seq int, at int64) Row {
	return Row{Event: outbox.IDFromUUID(id(aggregate, seq)), Aggregate: aggregateID(aggregate), Seq: int64(seq), Topic: "t", Written: at}
}

func record(aggregate, seq int, partition int32, offset, at int64) Record {
	return Record{
		Event: outbox.IDFromUUID(id(aggregate, seq)), Aggregate: aggregateID(aggregate), Seq: int64(seq),
		Topic: "t", Partition: partition, Offset: offset, At: at, Seen: at,
	}
}

// old is a record of an event that is as old.
func old(r Record, created int64) Record {
	r.Created = created
	return r
}

func micro(n int64) time.Time { return time.UnixMicro(n) }

// An event with a dead letter is not missing; a later one without a dead letter is; one
// in a topic is published.
func TestCheck_DeadLetters(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	rows := []Row{row(1, 1, 10), row(1, 2, 20), row(1, 3, 30), row(1, 4, 40), row(2, 1, 10), row(3, 1, 10), row(4, 1, 10), row(5, 1, 10)}
	if err := errors.Join(l.AddRows(rows...), l.AddRecords(record(1, 1, 0, 0, 11), record(3, 1, 0, 1, 11))); err != nil {
		t.Fatal(err)
	}
	l.AddDeadLetters(
		DeadLetter{Event: rows[1].Event.UUID(), Detail: "suspended"}, DeadLetter{Event: rows[2].Event.UUID(), State: DeadLetterBlocked},
		DeadLetter{Event: rows[5].Event.UUID()}, DeadLetter{Event: rows[6].Event.UUID(), State: DeadLetterClosed}, DeadLetter{Event: rows[7].Event.UUID(), State: DeadLetterLate},
	)
	want := Counts{Rows: 8, Published: 2, Dead: 1, Blocked: 1, Closed: 1, Pending: 1, Missing: 2}
	var found []string
	got := l.Check(Window{}, func(f Finding) { found = append(found, fmt.Sprintf("%s %d %.6s", f.Kind, f.Seq, f.Detail)) })
	if got != want {
		t.Errorf("Check() = %+v, want %+v", got, want)
	}
	if want := []string{"dead 2 suspen", "blocked 3 ", "missing 4 writte", "missing 1 writte", "closed 1 "}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

func TestCheck_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		rows    []Row
		records []Record
		cut     int64
		window  Window
		want    Counts
		found   []string // kind and sequence
	}{
		{
			name: "nothing",
			rows: []Row{row(1, 1, 10), row(1, 2, 20)}, records: []Record{record(1, 1, 0, 0, 11), record(1, 2, 0, 1, 21)},
			want: Counts{Rows: 2, Published: 2},
		},
		{
			name: "missing",
			rows: []Row{row(1, 1, 10), row(1, 2, 20), row(1, 3, 30)}, records: []Record{record(1, 1, 0, 0, 11), record(1, 3, 0, 1, 31)},
			want: Counts{Rows: 3, Published: 2, Missing: 1}, found: []string{"missing 2"},
		},
		{
			name: "double in one partition", rows: []Row{row(1, 1, 10)},
			records: []Record{record(1, 1, 0, 0, 11), record(1, 1, 0, 1, 12), record(1, 1, 0, 2, 12)},
			want:    Counts{Rows: 1, Published: 1, Doubles: 2}, found: []string{"double 1", "double 1"},
		},
		{
			name: "double in two partitions, the first one read last", rows: []Row{row(1, 1, 10), row(1, 2, 20)},
			records: []Record{record(1, 2, 1, 0, 50), record(1, 1, 0, 0, 11), record(1, 2, 0, 1, 21)},
			want:    Counts{Rows: 2, Published: 2, Doubles: 1}, found: []string{"double 2"},
		},
		{
			name: "a record read twice is one record", rows: []Row{row(1, 1, 10)},
			records: []Record{record(1, 1, 0, 4, 11), record(1, 1, 0, 4, 11)},
			want:    Counts{Rows: 1, Published: 1},
		},
		{
			name: "disorder in a partition, by place", rows: []Row{row(1, 1, 10), row(1, 2, 20), row(1, 3, 30)},
			records: []Record{record(1, 3, 0, 0, 40), record(1, 1, 0, 1, 40), record(1, 2, 0, 2, 40)},
			want:    Counts{Rows: 3, Published: 3, Disorder: 1}, found: []string{"disorder 3"},
		},
		{
			name: "disorder behind more than the one before", rows: []Row{row(1, 1, 10), row(1, 2, 20), row(1, 3, 30)},
			records: []Record{record(1, 2, 0, 0, 40), record(1, 3, 0, 1, 40), record(1, 1, 0, 2, 40)},
			want:    Counts{Rows: 3, Published: 3, Disorder: 2}, found: []string{"disorder 2", "disorder 3"},
		},
		{
			name: "disorder across partitions, by time", rows: []Row{row(1, 1, 10), row(1, 2, 20)},
			records: []Record{record(1, 1, 0, 0, 40), record(1, 2, 1, 0, 39)},
			want:    Counts{Rows: 2, Published: 2, Disorder: 1}, found: []string{"disorder 2"},
		},
		{
			name: "the same time in two partitions is in order", rows: []Row{row(1, 1, 10), row(1, 2, 20)},
			records: []Record{record(1, 1, 0, 5, 40), record(1, 2, 1, 0, 40)},
			want:    Counts{Rows: 2, Published: 2},
		},
		{
			name: "a repeat behind is no disorder", rows: []Row{row(1, 1, 10), row(1, 2, 20)},
			records: []Record{record(1, 1, 0, 0, 11), record(1, 2, 0, 1, 21), record(1, 1, 0, 2, 30), record(1, 2, 0, 3, 31)},
			want:    Counts{Rows: 2, Published: 2, Doubles: 2}, found: []string{"double 1", "double 2"},
		},
		{
			name: "gap", rows: []Row{row(1, 1, 10), row(1, 3, 30), row(2, 1, 30)},
			records: []Record{record(1, 1, 0, 0, 11), record(1, 3, 0, 1, 31), record(2, 1, 0, 2, 32)},
			want:    Counts{Rows: 3, Published: 3, Gaps: 1}, found: []string{"gap 3"},
		},
		{
			name: "what is before the first row may have expired", rows: []Row{row(1, 4, 10)}, records: []Record{record(1, 4, 0, 0, 11)},
			want: Counts{Rows: 1, Published: 1},
		},
		{
			name: "unless nothing has", rows: []Row{row(1, 4, 10)}, records: []Record{record(1, 4, 0, 0, 11)},
			window: Window{FromFirst: true},
			want:   Counts{Rows: 1, Published: 1, Gaps: 1}, found: []string{"gap 4"},
		},
		{
			name: "written after the window", rows: []Row{row(1, 1, 10), row(2, 1, 2000), row(3, 1, 2000)},
			records: []Record{record(1, 1, 0, 0, 11), record(3, 1, 0, 1, 2001)}, window: Window{Until: micro(1000)},
			want: Counts{Rows: 1, Published: 1, Young: 2, Pending: 1},
		},
		{
			name: "written before the window", rows: []Row{row(1, 1, 10), row(1, 2, 2000)}, records: []Record{record(1, 2, 0, 0, 2001)},
			window: Window{Since: micro(1000)},
			want:   Counts{Rows: 1, Published: 1},
		},
		{
			name: "the topic has deleted what is as old", rows: []Row{row(1, 1, 10), row(2, 1, 200)}, cut: 100,
			want: Counts{Rows: 2, Untold: 1, Missing: 1}, found: []string{"missing 1"},
		},
		{
			name: "a published event whose row was lost", rows: []Row{row(1, 1, 10)}, records: []Record{record(1, 1, 0, 0, 11), record(1, 2, 0, 1, 12)},
			want: Counts{Rows: 1, Published: 1, Unknown: 1}, found: []string{"unknown 2"},
		},
		{
			name: "a published event whose row another writer overwrote", rows: []Row{row(1, 1, 10), again(7, row(1, 2, 20)), row(1, 3, 30)},
			records: []Record{record(1, 1, 0, 0, 11), record(1, 2, 0, 1, 12), of(again(7, row(1, 2, 20)), 0, 2), record(1, 3, 0, 3, 31)},
			want:    Counts{Rows: 3, Published: 3, Conflicts: 1}, found: []string{"conflict 2"},
		},
		{
			name: "two rows with one number", rows: []Row{row(1, 1, 10), row(1, 2, 20), again(7, row(1, 2, 21)), row(1, 3, 30)},
			records: []Record{record(1, 1, 0, 0, 11), record(1, 2, 0, 1, 22), record(1, 3, 0, 2, 31), of(again(7, row(1, 2, 21)), 0, 3)},
			want:    Counts{Rows: 4, Published: 4, Conflicts: 1}, found: []string{"conflict 2"},
		},
		{
			name: "published long after its row, which has expired", records: []Record{old(record(1, 1, 0, 0, 2000), 900), old(record(2, 1, 0, 1, 2001), 1100)},
			window: Window{Alive: micro(1000)},
			want:   Counts{Unknown: 1}, found: []string{"unknown 1"},
		},
		{
			name: "records that outlived their rows", records: []Record{record(1, 1, 0, 0, 11), record(2, 1, 0, 1, 2000)},
			window: Window{Alive: micro(1000)},
			want:   Counts{Unknown: 1}, found: []string{"unknown 1"},
		},
	} {
		// The result does not depend on the side that is read first.
		for _, recordsFirst := range []bool{false, true} {
			l := NewLedger()
			add := []func() error{
				func() error { return l.AddRows(tt.rows...) },
				func() error { return l.AddRecords(tt.records...) },
				func() error { return l.AddRows(tt.rows...) }, // a second scan
			}
			if recordsFirst {
				slices.Reverse(add[:2])
			}
			for _, f := range add {
				if err := f(); err != nil {
					t.Fatal(err)
				}
			}
			if tt.cut != 0 {
				if err := l.Cut("t", micro(tt.cut)); err != nil {
					t.Fatal(err)
				}
			}
			var found []string
			got := l.Check(tt.window, func(f Finding) { found = append(found, fmt.Sprintf("%s %d", f.Kind, f.Seq)) })
			slices.Sort(found)
			if got != tt.want || !slices.Equal(found, tt.found) {
				t.Errorf("%s (records first %v): %+v %q\nwant %+v %q", tt.name, recordsFirst, got, found, tt.want, tt.found)
			}
			verdict := VerdictOK
			switch {
			case len(tt.found) > 0:
				verdict = VerdictProblems
			case tt.want.Published == 0:
				verdict = VerdictNothingChecked
			}
			if got.Verdict() != verdict {
				t.Errorf("%s: Verdict() = %s, want %s", tt.name, got.Verdict(), verdict)
			}
		}
	}
}

func TestCheck_UnreadableRowsAreNamed(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	l.AddUnreadable(Unreadable{Aggregate: aggregateID(1), Seq: 7, Problem: "event_id is null or zero", Events: []gocql.UUID{id(8, 1), id(8, 2)}})
	l.AddUnreadable(Unreadable{Aggregate: aggregateID(1), Seq: 8, Problem: "event_type is null or empty", Events: []gocql.UUID{id(9, 1)}})
	var found []Finding
	c := l.Check(Window{}, func(f Finding) { found = append(found, f) })
	if c.Unreadable != 2 || c.OK() || len(found) != 2 || found[0].Seq != 7 || found[0].Aggregate != aggregateID(1) {
		t.Fatalf("%+v %+v", c, found)
	}
	if !found[0].Event.IsZero() || found[1].Event.UUID() != id(9, 1) {
		t.Errorf("the rows are named %s and %s, want none without an event id, and %s", found[0].Event, found[1].Event, id(9, 1))
	}
}

// The ledger agrees with a simple model of maps.
func TestLedger_AgreesWithAPlainAccount(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Range(t, 50) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := NewLedger()
		rows, records, doubles := map[gocql.UUID]bool{}, map[gocql.UUID]bool{}, int64(0)
		next := [3]int64{}
		for range 3 * compact.ChunkLen / 10 {
			a, s := r.IntN(200), 1+r.IntN(20)
			if r.IntN(2) == 0 {
				rows[id(a, s)] = true
				if err := l.AddRows(row(a, s, int64(100*s))); err != nil {
					t.Fatal(err)
				}
				continue
			}
			p := r.IntN(len(next))
			if records[id(a, s)] {
				doubles++
			}
			records[id(a, s)] = true
			if err := l.AddRecords(record(a, s, int32(p), next[p], r.Int64N(5000))); err != nil {
				t.Fatal(err)
			}
			next[p]++
		}
		both := int64(0)
		for u := range rows {
			if records[u] {
				both++
			}
		}
		got := l.Check(Window{}, nil)
		if got.Rows != int64(len(rows)) || got.Published != both || got.Missing != int64(len(rows))-both ||
			got.Unknown != int64(len(records))-both || got.Doubles != doubles {
			t.Errorf("seed %d: %+v, want %d rows, %d records, %d both, %d doubles", seed, got, len(rows), len(records), both, doubles)
		}
		if tot := l.Totals(); tot != (Totals{int64(len(rows)), int64(len(records)), both}) {
			t.Errorf("seed %d: totals %+v", seed, tot)
		}
	}
}

func TestLedger_RowsComeInSequence(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	want := []Row{row(2, 1, 5), row(2, 2, 6), row(1, 1, 7)}
	if err := l.AddRows(want[1], want[2], want[0]); err != nil {
		t.Fatal(err)
	}
	got := slices.Collect(l.Rows())
	slices.SortStableFunc(got, func(x, y Row) int { return cmp.Compare(aggregateNumber(y.Aggregate), aggregateNumber(x.Aggregate)) })
	if !slices.Equal(got, want) {
		t.Errorf("Rows() = %v, want %v", got, want)
	}
}

func TestLedger_MemoryOfAMillionEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("a million events")
	}
	if n := unsafe.Sizeof(entry{}); n != 64 {
		t.Errorf("an entry has %d bytes, want 64", n)
	}
	// A text is kept beside its 16 bytes.
	for name, tt := range map[string]struct {
		id   func(int) outbox.ID
		most int64
	}{
		"UUIDs":           {func(a int) outbox.ID { return outbox.IDFromUUID(id(a, 0)) }, 120e6},
		"UUIDs and texts": {aggregateID, 160e6},
	} {
		t.Run(name, func(t *testing.T) { ledgerOfAMillion(t, tt.id, tt.most) })
	}
}

func ledgerOfAMillion(t *testing.T, aggregate func(int) outbox.ID, most int64) {
	t.Helper()
	const events = 1_000_000
	before := heap()
	l := NewLedger()
	for i := range events {
		stored, published := row(i, 1, int64(i+1)), record(i, 1, int32(i%6), int64(i/6), int64(i+2))
		stored.Aggregate, published.Aggregate = aggregate(i), aggregate(i)
		if err := errors.Join(l.AddRows(stored), l.AddRecords(published)); err != nil {
			t.Fatal(err)
		}
	}
	used := heap() - before
	began := time.Now()
	c := l.Check(Window{}, nil)
	t.Logf("%d events of as many aggregates: %.0f MB, checked in %s", events, float64(used)/1e6, time.Since(began))
	if c != (Counts{Rows: events, Published: events}) {
		t.Errorf("Check() = %+v", c)
	}
	if used > most {
		t.Errorf("%d events take %d bytes, more than %d", events, used, most)
	}
	runtime.KeepAlive(l)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
