package publish

import (
	"context"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// evidence has the fate of each row by its number, and the numbers that are in the topic.
type evidence struct {
	fates   map[int64]Fate
	inTopic map[int64]bool
}

func (e evidence) Fate(f *cdclog.StoredEvent, _, _ int64) Fate { return e.fates[f.Sequence] }

func (e evidence) Prove(_ context.Context, f *cdclog.StoredEvent, _ bool) (bool, error) {
	return e.inTopic[f.Sequence], nil
}

func (e evidence) Find(ctx context.Context, f *cdclog.StoredEvent) (bool, error) {
	return e.Prove(ctx, f, false)
}

// A dead letter may have been written because an earlier event was with the producer, whose
// relay then crashed: the earlier event is in no topic, and must be found (seed 991).
func TestPredecessors_ADeadLetterProvesNothingForThoseBeforeIt(t *testing.T) {
	t.Parallel()
	fates := map[int64]Fate{1: FateDoubtful, 2: FateDoubtful, 3: FateDoubtful, 4: FateDeadLetter, 5: FateUnpublished}
	lookup := func(_ context.Context, _ *outbox.Event, from, to int64, take func(cdclog.StoredEvent) error) error {
		for n := from; n < min(to, 6); n++ {
			if err := take(cdclog.StoredEvent{Event: outbox.Event{Sequence: n}}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, tt := range []struct {
		name    string
		inTopic map[int64]bool
		want    EarlierRows
	}{
		{"lost before it", map[int64]bool{1: true, 2: true}, EarlierRows{Published: 2, Missed: 5, Lowest: 1, Highest: 5}},
		{"published before it", map[int64]bool{1: true, 2: true, 3: true}, EarlierRows{Published: 3, Missed: 5, Lowest: 1, Highest: 5}},
	} {
		d := Predecessors{Evidence: evidence{fates, tt.inTopic}, Lookup: lookup}
		if got, err := d.Find(t.Context(), new(outbox.Event), 6, 0, 0); err != nil || got != tt.want {
			t.Errorf("%s: Find() = %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}
