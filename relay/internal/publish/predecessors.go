package publish

import (
	"context"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Predecessors finds the rows of an aggregate that must be published before an event,
// where the aggregate is unknown: after a start, after its dedup entry was evicted, or
// before a repair. The readers and the repairer share the rule.
//
// The position of the sweep proves nothing: a row may become visible after the sweep has
// passed it.
//
//   - A row whose id is in the dedup index is published, or will be.
//   - A row whose event is a dead letter will be published by its replay. It may have been
//     written while an earlier event was with the producer, so it does not decide for others.
//   - A row that was written after this run began to read its stream, and after every
//     evicted id, would be in the dedup index. It is not published, unless it was
//     published before and written again: then a record is near the time of its creation.
//   - Any other row is doubtful. Rows are published in the order of their numbers, so
//     the last doubtful row decides for the earlier ones.
//
// The topics prove whether it is published (proofs).
type Predecessors struct {
	Evidence Evidence
	Lookup   cdclog.Lookup
	Quick    bool // leave a slow proof to the sweep reader
}

// Evidence shows whether events are published. *Publisher implements it.
type Evidence interface {
	// Fate returns whether an event was accepted, and Prove whether it is published. With
	// quick set Prove returns ErrLeft instead of a slow proof.
	Fate(f *cdclog.StoredEvent, began, remembered int64) Fate
	Prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (published bool, err error)
	// Find reports whether the event is in a topic near the time of its creation, or has a
	// dead letter.
	Find(ctx context.Context, f *cdclog.StoredEvent) (found bool, err error)
}

// EarlierRows are an aggregate's rows before an event.
type EarlierRows struct {
	// Published is the number of the last published row, 0 without one. No later row
	// is published.
	Published int64
	// Missed is the number of the first row that is not published, 0 without one.
	Missed int64
	// Lowest and Highest are the numbers of the first and the last row, 0 without rows.
	Lowest, Highest int64
}

// Late reports whether a row must be published after a later one.
func (r *EarlierRows) Late() bool { return r.Missed > 0 && r.Missed < r.Published }

// Find reads the rows of an aggregate below the number to. began is the time from which
// this run reads its stream, in microseconds; no id of a row written after remembered
// was evicted.
func (d *Predecessors) Find(ctx context.Context, of *outbox.Event, to, began, remembered int64) (out EarlierRows, err error) {
	for {
		var doubt *cdclog.StoredEvent
		find := false // a record near the time of its creation proves doubt, its absence the opposite
		lowest, highest := int64(0), int64(0)
		if err := d.Lookup(ctx, of, 1, to, func(f cdclog.StoredEvent) error {
			if lowest == 0 {
				lowest = f.Sequence
			}
			highest = f.Sequence
			switch fate := d.Evidence.Fate(&f, began, remembered); fate {
			case FateUnpublished, FateRewritten:
				if fate == FateRewritten {
					doubt, find = &f, true
				}
				if out.Missed == 0 || f.Sequence < out.Missed {
					out.Missed = f.Sequence
				}
			case FatePublished:
				out.Published, doubt = f.Sequence, nil
			case FateDoubtful:
				doubt, find = &f, false
			}
			f.Payload = nil
			return nil
		}); err != nil {
			return out, err
		}
		if lowest > 0 && out.Lowest == 0 {
			out.Lowest, out.Highest = lowest, highest
		}
		if doubt == nil {
			return out, nil
		}
		var published bool
		var err error
		if find {
			published, err = d.Evidence.Find(ctx, doubt)
		} else {
			published, err = d.Evidence.Prove(ctx, doubt, d.Quick)
		}
		if err != nil {
			return out, err
		}
		if published {
			out.Published = doubt.Sequence
			return out, nil
		}
		to = doubt.Sequence
	}
}
