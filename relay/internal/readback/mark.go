package readback

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// Mark returns the time from which to read the topics, zero if this relay never ran.
//
// The sweep reader returns again the events with a row past their stream's position.
// Let T be the oldest position of all streams. Such an event was written at T or later
// by its writer's clock and published after that. The timestamp of its record, by the
// clock of the publishing relay or of the broker, is therefore not before T, except for
// the difference between these clocks. The margin covers only that difference; the
// delay and the order of publication do not matter. An event whose row was written again may
// have been published before T: the readers look for its record (publish.Publisher).
func (r *Reader) Mark(ctx context.Context) (time.Time, error) {
	current, first, err := r.Store.Start(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if current.IsZero() && first.IsZero() {
		// The sweep reader saves it too, but after a crash before that, events that
		// were already published would not be read back.
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
	begin := checkpoint.Later(current, first) // the start of a stream without a position
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
		// The positions may be past the start of the next generation, which the tail
		// reader may have read already.
		if start.After(current) {
			earlier(start)
		}
	}
	return mark, nil
}

// ReadMark returns the time from which a relay may have published events that these
// checkpoints do not cover; zero if it never ran.
func ReadMark(ctx context.Context, cfg *Config, store checkpoint.Store, source cdclog.Generations) (time.Time, error) {
	r := Reader{cfg: cfg, Store: store, source: source}
	return r.Mark(ctx)
}
