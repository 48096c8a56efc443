package dedup

import (
	"encoding/binary"
	"maps"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// The events of an aggregate up to the last one without a gap are known to be published,
// in whatever order they were found.
func TestBackEvents_Lines(t *testing.T) {
	t.Parallel()
	long := make([]int64, 100)
	for i := range long {
		long[i] = int64(i + 1)
	}
	for _, tt := range []struct {
		found []int64
		want  Line
	}{
		{[]int64{1}, Line{1, 2}},
		{[]int64{1, 2, 3}, Line{1, 4}},
		{[]int64{3, 1, 2}, Line{1, 4}},
		{[]int64{7, 5, 4, 4, 7}, Line{7, 8}},
		{[]int64{7, 5, 4, 6}, Line{4, 8}},
		{[]int64{1, 200}, Line{200, 201}},
		{[]int64{200, 1}, Line{200, 201}},
		{[]int64{1, 64}, Line{64, 65}},
		{[]int64{1, 65}, Line{65, 66}},
		{long, Line{37, 101}},
	} {
		b := NewFound()
		for _, seq := range tt.found {
			b.Add(outbox.NameID(gocql.UUID{}, string(rune(seq))).UUID(), gocql.UUID{}, seq)
		}
		if got := b.runs[gocql.UUID{}].line(); got != tt.want {
			t.Errorf("found %v: %+v, want %+v", tt.found, got, tt.want)
		}
	}
}

// Events that a scan has published end the line of an aggregate that has others. Beyond the
// aggregates that are remembered, no line is known.
func TestFound_Scanned(t *testing.T) {
	t.Parallel()
	id := func(n uint32) (id gocql.UUID) { binary.BigEndian.PutUint32(id[:], n); return id }
	b := NewFound()
	for n := range uint32(maxScanned) {
		b.AddScanned(id(n), 7)
	}
	b.AddScanned(id(1), 5)
	b.Add(id(100), id(1), 3)
	b.Add(id(101), id(2), 9)
	got := maps.Collect(b.Lines())
	if want := map[gocql.UUID]Line{id(1): {7, 8}, id(2): {9, 10}}; !maps.Equal(got, want) {
		t.Errorf("Lines() = %v, want %v", got, want)
	}
	b.AddScanned(id(maxScanned), 1)
	if got := maps.Collect(b.Lines()); len(got) > 0 {
		t.Errorf("Lines() = %v with more aggregates of a scan than are remembered, want none", got)
	}
}
