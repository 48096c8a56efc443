package backfill

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/older"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

// readTopics reads the topics back to the start of the scan, and stores which events of
// the unscanned ranges are published. It returns the number of ranges, from the first,
// for which this is complete: fewer than all if there are more such events than memory
// allows.
func (b *Backfill) readTopics(ctx context.Context, row *checkpoint.Scan) (ranges int, err error) {
	if b.cfg.ReadBackMargin < 0 {
		return row.Ranges, nil // after a crash the started ranges are published again
	}
	r := b.readback
	var topics []string
	if err := r.Retry(ctx, func() (err error) {
		topics, err = r.Store.Topics(ctx)
		return err
	}); err != nil {
		return 0, err
	}
	topics = slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(topics, maps.Values(b.cfg.Topics)))))
	if len(topics) == 0 {
		return row.Ranges, nil // nothing was ever published
	}
	began := time.Now()
	f := older.NewFound(b.older, max(r.Most(), 1))
	r.Begin(true)
	r.Came()
	r.Sink = func(e *readback.Event) { f.Take(e.Token, e.ID) }
	defer func() {
		r.Sink = nil
		r.Begin(false)
	}()
	t := r.NewTopics()
	if err := r.Read(ctx, t, topics, row.Mark.Add(-r.Margin())); err != nil {
		return 0, err
	}
	if denied := slices.Sorted(maps.Keys(t.Denied)); len(denied) > 0 {
		b.log.Warn("topics may not be read back; events that the scan published to them are repeated with the same ids",
			"topics", denied, "grant", "READ on the topics")
	}
	b.log.Info("topics read back for the scan of the outbox table", "events", f.Kept, "since", row.Mark.UTC(), "took", time.Since(began))
	return f.Ranges, nil
}
