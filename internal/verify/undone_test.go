package verify

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// again is the row of another event with a number that was given before.
func again(life int, r Row) Row {
	r.Event = outbox.NameID(r.Event.UUID(), fmt.Sprint("life ", life))
	return r
}

// of returns the record of a row, of an epoch.
func of(r Row, epoch, offset int64) Record {
	return Record{Event: r.Event, Aggregate: r.Aggregate, Seq: r.Seq, Topic: "t", Offset: offset, At: r.Written + 1, Seen: r.Written + 1, Epoch: epoch}
}

// A restore undoes the last events of an aggregate: they are in the topic, of an earlier epoch, and
// the table has other events with their numbers, or none. Every other event without a row is
// unknown. The order is that of the epochs, then of the numbers.
func TestCheck_Undone(t *testing.T) {
	t.Parallel()
	const second, third = 1_000_000, 2_000_000 // in epochs 1 and 2
	undone := func(from, life int, at int64) (rows []Row) {
		for seq := from; seq <= 4; seq++ {
			rows = append(rows, again(life, row(1, seq, at+int64(seq))))
		}
		return rows
	}
	kept := []Row{row(1, 1, 1), row(1, 2, 2)}
	lost, new1, new2 := undone(3, 0, 0), undone(3, 1, second), undone(3, 2, third)
	records := func(epoch, offset int64, rows ...Row) (out []Record) {
		for i, r := range rows {
			out = append(out, of(r, epoch, offset+int64(i)))
		}
		return out
	}
	for _, tt := range []struct {
		name    string
		rows    [][]Row
		records [][]Record
		epochs  epochs.Epochs
		want    Counts
		found   []string
	}{
		{
			name: "without an epoch they are unknown",
			rows: [][]Row{kept}, records: [][]Record{records(0, 0, kept...), records(0, 2, lost...)},
			want:  Counts{Rows: 2, Published: 2, Unknown: 2},
			found: []string{"unknown 3", "unknown 4"},
		},
		{
			name: "no number is given again",
			rows: [][]Row{kept}, records: [][]Record{records(0, 0, kept...), records(0, 2, lost...)}, epochs: epochs.Epochs{1},
			want:  Counts{Rows: 2, Published: 2, Undone: 2},
			found: []string{"undone 3", "undone 4"},
		},
		{
			name: "numbers are given again",
			rows: [][]Row{kept, new1}, records: [][]Record{records(0, 0, kept...), records(0, 2, lost...), records(1, 4, new1...)}, epochs: epochs.Epochs{1},
			want:  Counts{Rows: 4, Published: 4, Undone: 2},
			found: []string{"undone 3 taken", "undone 4 taken"},
		},
		{
			name: "numbers are given again before the epoch begins",
			rows: [][]Row{kept, undone(3, 3, 10)}, records: [][]Record{records(0, 0, kept...), records(0, 2, lost...), records(0, 4, undone(3, 3, 10)...)}, epochs: epochs.Epochs{1},
			want:  Counts{Rows: 4, Published: 4, Conflicts: 2},
			found: []string{"conflict 3 taken", "conflict 4 taken"},
		},
		{
			name: "a second restore, of before the first",
			rows: [][]Row{kept, new2}, records: [][]Record{records(0, 0, kept...), records(0, 2, lost...), records(1, 4, new1...), records(2, 6, new2...)}, epochs: epochs.Epochs{2},
			want:  Counts{Rows: 4, Published: 4, Undone: 4},
			found: []string{"undone 3 taken", "undone 3 taken", "undone 4 taken", "undone 4 taken"},
		},
		{
			name: "a second restore, of the first epoch",
			rows: [][]Row{kept, new1[:1], new2[1:]}, records: [][]Record{records(0, 0, kept...), records(0, 2, lost...), records(1, 4, new1...), records(2, 6, new2[1:]...)},
			epochs: epochs.Epochs{1, 2},
			want:   Counts{Rows: 4, Published: 4, Undone: 3},
			found:  []string{"undone 3 taken", "undone 4 taken", "undone 4 taken"},
		},
		{
			name:    "all events of an aggregate",
			records: [][]Record{records(0, 0, kept...)}, epochs: epochs.Epochs{1},
			want:  Counts{Undone: 2},
			found: []string{"undone 1", "undone 2"},
		},
		{
			name: "a row that the database lost amid others",
			rows: [][]Row{kept[1:], new1}, records: [][]Record{records(0, 0, kept...), records(1, 2, new1...)}, epochs: epochs.Epochs{1},
			want:  Counts{Rows: 3, Published: 3, Unknown: 1},
			found: []string{"unknown 1"},
		},
		{
			name: "a row that the database lost in the current epoch",
			rows: [][]Row{kept, new1[:1]}, records: [][]Record{records(0, 0, kept...), records(1, 2, new1...)}, epochs: epochs.Epochs{1},
			want:  Counts{Rows: 3, Published: 3, Unknown: 1},
			found: []string{"unknown 4"},
		},
		{
			name: "an event of the first epoch behind one of the second",
			rows: [][]Row{kept, new1}, records: [][]Record{records(1, 0, new1...), records(0, 2, kept...)}, epochs: epochs.Epochs{1},
			want:  Counts{Rows: 4, Published: 4, Disorder: 2},
			found: []string{"disorder 3", "disorder 4"},
		},
		{
			name: "one event in two epochs",
			rows: [][]Row{kept}, records: [][]Record{records(0, 0, kept...), records(1, 2, kept[1])}, epochs: epochs.Epochs{1},
			want:  Counts{Rows: 2, Published: 2, Doubles: 1},
			found: []string{"double 2"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := NewLedger()
			if err := errors.Join(l.AddRows(slices.Concat(tt.rows...)...), l.AddRecords(slices.Concat(tt.records...)...)); err != nil {
				t.Fatal(err)
			}
			var found []string
			got := l.Check(Window{Epochs: tt.epochs}, func(f Finding) {
				text := fmt.Sprintf("%s %d", f.Kind, f.Seq)
				if (f.Kind == Undone || f.Kind == Unknown || f.Kind == Conflict) && f.Detail != "" {
					text += " taken"
				}
				found = append(found, text)
			})
			slices.Sort(found)
			if got != tt.want || !slices.Equal(found, tt.found) {
				t.Errorf("Check() = %+v with %q\nwant %+v with %q", got, found, tt.want, tt.found)
			}
		})
	}
}
