package earlier

import (
	"context"
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// evidence has the fate of each row by its number, the numbers that are in the topic, and the
// numbers of settled dead letters.
type evidence struct {
	fates            map[int64]Fate
	inTopic, settled map[int64]bool
}

func (e evidence) Fate(f *cdclog.StoredEvent, _, _ int64) Fate { return e.fates[f.Sequence] }

func (e evidence) Prove(_ context.Context, f *cdclog.StoredEvent, _ bool) (Fate, error) {
	switch {
	case e.inTopic[f.Sequence]:
		return Published, nil
	case e.settled[f.Sequence]:
		return DeadLetter, nil
	}
	return Unpublished, nil
}

func (e evidence) Find(ctx context.Context, f *cdclog.StoredEvent) (Fate, error) {
	return e.Prove(ctx, f, false)
}

// lookUpFiveRows is a lookup of the rows 1 to 5.
func lookUpFiveRows(_ context.Context, _ *outbox.Event, from, to int64, take func(cdclog.StoredEvent) error) error {
	for n := from; n < min(to, 6); n++ {
		if err := take(cdclog.StoredEvent{Event: outbox.Event{Sequence: n}}); err != nil {
			return err
		}
	}
	return nil
}

// A dead letter may have been written because an earlier event was with the producer, whose
// relay then crashed: the earlier event is in no topic, and must be found (seed 991), also if
// the dead letter was settled since.
func TestFinder_ADeadLetterProvesNothingForThoseBeforeIt(t *testing.T) {
	t.Parallel()
	open := map[int64]Fate{1: Doubtful, 2: Doubtful, 3: Doubtful, 4: DeadLetter, 5: Unpublished}
	settled := map[int64]Fate{1: Doubtful, 2: Doubtful, 3: Doubtful, 4: Doubtful, 5: Unpublished}
	for _, tt := range []struct {
		name    string
		inTopic map[int64]bool
		want    Rows
	}{
		{"lost before it", map[int64]bool{1: true, 2: true}, Rows{Published: 2, Missed: 5, Lowest: 1, Highest: 5}},
		{"published before it", map[int64]bool{1: true, 2: true, 3: true}, Rows{Published: 3, Missed: 5, Lowest: 1, Highest: 5}},
	} {
		for _, fates := range []map[int64]Fate{open, settled} {
			d := Finder{Evidence: evidence{fates, tt.inTopic, map[int64]bool{4: true}}, Lookup: lookUpFiveRows}
			if got, err := d.Find(t.Context(), new(outbox.Event), 6, 0, 0); err != nil || got != tt.want {
				t.Errorf("%s, fate of 4 %d: Find() = %+v, %v, want %+v", tt.name, fates[4], got, err, tt.want)
			}
		}
	}
}

// Unpublished gives the rows that are in no topic, without dead letters.
func TestFinder_Unpublished(t *testing.T) {
	t.Parallel()
	fates := map[int64]Fate{1: Doubtful, 2: Doubtful, 3: Doubtful, 4: DeadLetter, 5: Doubtful}
	for _, tt := range []struct {
		inTopic map[int64]bool
		want    []int64
	}{
		{map[int64]bool{1: true, 2: true, 3: true, 5: true}, nil},
		{map[int64]bool{1: true, 2: true, 3: true}, []int64{5}},
		{map[int64]bool{1: true}, []int64{2, 3, 5}},
	} {
		d := Finder{Evidence: evidence{fates, tt.inTopic, nil}, Lookup: lookUpFiveRows}
		var got []int64
		err := d.Unpublished(t.Context(), new(outbox.Event), 6, 0, func(f cdclog.StoredEvent) error {
			got = append(got, f.Sequence)
			return nil
		})
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("with %v in the topic: Unpublished() = %v, %v, want %v", tt.inTopic, got, err, tt.want)
		}
	}
}
