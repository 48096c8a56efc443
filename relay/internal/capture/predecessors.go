package capture

import (
	"context"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// predecessors finds the rows of an aggregate that must be published before an event,
// where the aggregate is unknown: after a start, or after its dedup entry was evicted. The
// tail reader and the sweep reader share the rule.
//
// The position of the sweep proves nothing: a row may become visible after the sweep has
// passed it.
//
//   - A row whose id is in the dedup index is published, or will be.
//   - A row that was written after this run began to read its stream, and after every
//     evicted id, would be in the dedup index. It is not published, unless it was
//     published before and written again: then a record is near the time of its creation.
//   - Any other row is doubtful. Rows are published in the order of their numbers, so
//     the last doubtful row decides for the earlier ones.
//
// The topics prove whether it is published (proofs).
type predecessors struct {
	sink   Sink
	lookup cdclog.Lookup
	quick  bool // leave a slow proof to the sweep reader
}

// earlierRows are an aggregate's rows before an event.
type earlierRows struct {
	// published is the number of the last published row, 0 without one. No later row
	// is published.
	published int64
	// missed is the number of the first row that is not published, 0 without one.
	missed int64
	// lowest and highest are the numbers of the first and the last row, 0 without rows.
	lowest, highest int64
}

// late reports whether a row must be published after a later one.
func (r *earlierRows) late() bool { return r.missed > 0 && r.missed < r.published }

// find reads the rows of an aggregate below the number to. began is the time from which
// this run reads its stream, in microseconds; no id of a row written after remembered
// was evicted.
func (d *predecessors) find(ctx context.Context, of *outbox.Event, to, began, remembered int64) (out earlierRows, err error) {
	for {
		var doubt *cdclog.StoredEvent
		find := false // a record near the time of its creation proves doubt, its absence the opposite
		lowest, highest := int64(0), int64(0)
		if err := d.lookup(ctx, of, 1, to, func(f cdclog.StoredEvent) error {
			if lowest == 0 {
				lowest = f.Sequence
			}
			highest = f.Sequence
			switch d.sink.Fate(&f, began, remembered) {
			case publish.FateUnpublished:
				if f.Rewritten() {
					doubt, find = &f, true
				}
				if out.missed == 0 || f.Sequence < out.missed {
					out.missed = f.Sequence
				}
			case publish.FatePublished:
				out.published, doubt = f.Sequence, nil
			case publish.FateDoubtful:
				doubt, find = &f, false
			}
			f.Payload = nil
			return nil
		}); err != nil {
			return out, err
		}
		if lowest > 0 && out.lowest == 0 {
			out.lowest, out.highest = lowest, highest
		}
		if doubt == nil {
			return out, nil
		}
		var published bool
		var err error
		if find {
			published, err = d.sink.Find(ctx, doubt)
		} else {
			published, err = d.sink.Prove(ctx, doubt, d.quick)
		}
		if err != nil {
			return out, err
		}
		if published {
			out.published = doubt.Sequence
			return out, nil
		}
		to = doubt.Sequence
	}
}
