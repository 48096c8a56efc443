package readback

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// Mark returns the time back to which the topics are to be read, zero if this
// relay never ran.
//
// What the sweep will show again are the events with a row past their stream's
// position. The oldest position of all streams is T. Such an event was written
// at T or later by its writer's clock, and published after that, so its record's
// timestamp, by the clock of the relay that published it or of the broker, is not
// before T but for the difference between these clocks. That is what margin is
// for, and nothing else: how long after its write an event was published, or in
// what order, is of no concern.
func (r *Reader) Mark(ctx context.Context) (time.Time, error) {
	current, first, err := r.Store.Start(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if current.IsZero() && first.IsZero() {
		// The reader would save it too, but what is published before it does, and
		// before a crash, would not be read back.
		return time.Time{}, r.Store.SaveFirst(ctx, time.Now().Add(-r.cfg.FirstAge))
	}
	if current.IsZero() {
		return first, nil
	}
	positions, err := r.Store.Positions(ctx, current)
	if err != nil {
		return time.Time{}, err
	}
	starts, err := r.source.Times(ctx)
	if err != nil {
		return time.Time{}, err
	}
	begin := checkpoint.Later(current, first) // where a stream without a position is read from
	if !slices.ContainsFunc(starts, current.Equal) {
		return begin, nil // the database no longer knows its streams
	}
	g, err := r.source.Generation(ctx, current)
	if err != nil {
		return time.Time{}, fmt.Errorf("find out how far the streams are: %w", err)
	}
	var mark time.Time
	earlier := func(t time.Time) {
		if mark.IsZero() || t.Before(mark) {
			mark = t
		}
	}
	for _, stream := range g.Streams {
		if pos, ok := positions[string(stream)]; ok {
			earlier(pos.Time())
		} else {
			earlier(begin)
		}
	}
	for _, start := range starts {
		// The positions may be past the beginning of the next generation, and the
		// tail was there already.
		if start.After(current) {
			earlier(start)
		}
	}
	return mark, nil
}

// MarkOf returns the time from which a relay with these checkpoints may have published
// what they do not cover; zero if it never ran.
func MarkOf(ctx context.Context, cfg *Config, store checkpoint.Store, source cdclog.Generations) (time.Time, error) {
	r := Reader{cfg: cfg, Store: store, source: source}
	return r.Mark(ctx)
}
