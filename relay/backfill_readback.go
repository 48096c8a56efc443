package relay

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// readTopics reads the topics back to when the scan was begun, and keeps which
// events of the ranges that are still to be scanned are out. It returns how many
// ranges, from the first on, that is known of: not all of them if there are more
// such events than may be remembered.
func (b *backfill) readTopics(ctx context.Context, row *checkpoint.Scan) (ranges int, err error) {
	if b.cfg.ReadBackMargin < 0 {
		return row.Ranges, nil // after a crash the ranges that were begun are published again
	}
	r := b.readback
	var topics []string
	if err := r.retry(ctx, func() (err error) {
		topics, err = r.store.Topics(ctx)
		return err
	}); err != nil {
		return 0, err
	}
	topics = slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(topics, maps.Values(b.cfg.Topics)))))
	if len(topics) == 0 {
		return row.Ranges, nil // nothing was ever published
	}
	began := time.Now()
	f := &olderFound{older: b.older, most: max(r.most(), 1), ranges: row.Ranges}
	r.begin(true)
	r.came()
	r.sink = f.take
	defer func() {
		r.sink = nil
		r.begin(false)
	}()
	t := r.newTopics()
	var denied []string
	t.refuse = func(topic string, _ error) { denied = append(denied, topic) }
	if err := r.read(ctx, t, topics, row.Mark.Add(-b.cfg.ReadBackMargin)); err != nil {
		return 0, err
	}
	if len(denied) > 0 {
		b.log.Warn("topics may not be read back; what the scan published to them before is published again, with the same event ids",
			"topics", denied, "grant", "READ on the topics")
	}
	b.log.Info("topics read back for the scan of the outbox table", "events", f.kept, "since", row.Mark.UTC(), "took", time.Since(began))
	return f.ranges, nil
}

// olderFound keeps what is found in topics, of as many ranges as there is room
// for. The readback that calls it holds its lock.
type olderFound struct {
	older  *olderRows
	most   int
	ranges int // it keeps what belongs to ranges before this one
	kept   int
}

func (f *olderFound) take(e *topicEvent) {
	o := f.older
	o.mu.Lock()
	defer o.mu.Unlock()
	r, token, open := o.of(e.aggregate)
	if !open || o.arc.PartOf(token, len(o.ranges)) >= f.ranges {
		return
	}
	if r.out == nil {
		r.out = make(map[gocql.UUID]struct{})
	}
	before := len(r.out)
	r.out[e.id] = struct{}{}
	f.kept += len(r.out) - before
	// One range is always kept: a part of the scan has to be that large.
	for f.kept > f.most && f.first() < f.ranges-1 {
		f.ranges--
		f.kept -= len(o.ranges[f.ranges].out)
		o.ranges[f.ranges].out = nil
	}
}

// first is the first range that is still to be scanned.
func (f *olderFound) first() int {
	return slices.IndexFunc(f.older.ranges, func(r olderRange) bool { return r.open })
}
