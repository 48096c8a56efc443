package capture

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

const (
	// maxTailGaps is the maximum number of waiting aggregates; further ones are left
	// to the sweep reader.
	maxTailGaps = 1000
	// tailLookups is the maximum number of concurrent lookups by key.
	tailLookups = 16
	// Lookups of one missing event back off between these intervals.
	minTailGapWait = 5 * time.Millisecond
	maxTailGapWait = time.Second
)

// tailGaps contains the aggregates of which the tail reader read an event ahead of its
// turn. It reads the missing events and the event itself by key, so waiting events are
// not retained. Other aggregates are not delayed.
//
// A missing event may be in the batchlog for a minute, so the tail reader never skips
// it. After the confidence window the sweep reader decides.
type tailGaps struct {
	sink    TailSink
	leave   func(aggregate gocql.UUID)
	lookup  cdclog.Lookup
	earlier *earlier.Finder
	giveUp  time.Duration
	lookups chan struct{} // holds one token for each look-up under way
	wg      sync.WaitGroup

	mu      sync.Mutex
	waiting map[gocql.UUID]*tailGap
}

// tailGap is an aggregate with an event missing.
type tailGap struct {
	of    outbox.Event // names the aggregate
	upTo  int64        // the last event that the log has shown
	since time.Time
	// began returns the time from which this run reads the aggregate's stream, if known.
	began func() (int64, bool)
	poke  chan struct{} // the log has shown another event
}

func newTailGaps(cfg *Config, sink TailSink, find cdclog.Lookup, leave func(gocql.UUID)) *tailGaps {
	return &tailGaps{
		sink: sink, leave: leave, lookup: find, earlier: &earlier.Finder{Evidence: sink, Lookup: find, Quick: true}, giveUp: cfg.ConfidenceWindow + tailMargin,
		lookups: make(chan struct{}, tailLookups), waiting: make(map[gocql.UUID]*tailGap),
	}
}

// await submits e and the missing events before it as soon as they are visible. It does
// not block: a goroutine per aggregate does the lookups.
func (g *tailGaps) await(ctx context.Context, e *outbox.Event, began func() (int64, bool)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w, ok := g.waiting[e.AggregateID.UUID()]; ok {
		w.upTo = max(w.upTo, e.Sequence)
		select {
		case w.poke <- struct{}{}:
		default:
		}
		return
	}
	if len(g.waiting) >= maxTailGaps {
		g.leave(e.AggregateID.UUID())
		return
	}
	of := outbox.Event{AggregateID: e.AggregateID}
	w := &tailGap{of: of, upTo: e.Sequence, since: time.Now(), began: began, poke: make(chan struct{}, 1)}
	g.waiting[e.AggregateID.UUID()] = w
	g.wg.Go(func() { g.resolve(ctx, w) })
}

func (g *tailGaps) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// resolve retries until the missing events are found or left to the sweep reader.
func (g *tailGaps) resolve(ctx context.Context, w *tailGap) {
	for attempt := 1; ; attempt++ {
		found, err := g.try(ctx, w)
		if ctx.Err() != nil || g.endGap(w, found, err) {
			return
		}
		wait := time.NewTimer(retry.Backoff(minTailGapWait, maxTailGapWait, attempt))
		select {
		case <-wait.C:
		case <-w.poke:
		case <-ctx.Done():
		}
		wait.Stop()
	}
}

// endGap removes the aggregate, unless more events are missing.
func (g *tailGaps) endGap(w *tailGap, upTo int64, err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	late := time.Since(w.since) >= g.giveUp
	if upTo < w.upTo && err == nil && !late {
		return false
	}
	if err != nil && !late && !errors.Is(err, publish.ErrLeft) {
		return false
	}
	if upTo < w.upTo {
		g.leave(w.of.AggregateID.UUID())
	}
	delete(g.waiting, w.of.AggregateID.UUID())
	return true
}

// try submits the visible events and returns the number of the last submitted event of
// the aggregate.
func (g *tailGaps) try(ctx context.Context, w *tailGap) (upTo int64, err error) {
	select {
	case g.lookups <- struct{}{}:
		defer func() { <-g.lookups }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	release, err := g.sink.TryClaimPassed(ctx, g.lookup, w.of.AggregateID)
	if err != nil || release == nil {
		return 0, err // without an error, the sweep reader has the claim
	}
	defer release()
	g.mu.Lock()
	last := w.upTo
	g.mu.Unlock()
	next, known := g.sink.Expect(w.of.AggregateID.UUID())
	if known && next > last {
		return next - 1, nil
	}
	if !known {
		if next, err = g.begin(ctx, w, last+1); err != nil {
			return 0, err
		}
		g.sink.Resolve(&w.of, next)
	}
	if err := g.sink.FindGaps(ctx, g.lookup, &w.of, last); err != nil {
		return 0, err
	}
	err = g.lookup(ctx, &w.of, next, last+1, func(f cdclog.StoredEvent) error {
		switch {
		case f.Sequence < next:
			return nil
		case f.Sequence > next:
			return errHole
		case f.Err != nil:
			return publish.ErrLeft
		}
		if err := g.sink.Submit(ctx, f, publish.ByKey, publish.Settlement{}); err != nil {
			return err
		}
		next++
		return nil
	})
	if errors.Is(err, errHole) {
		err = nil // the next attempt looks it up again
	}
	return next - 1, err
}

// begin returns the number with which an aggregate without a dedup entry continues.
func (g *tailGaps) begin(ctx context.Context, w *tailGap, to int64) (int64, error) {
	began, ok := w.began()
	if !ok {
		return 0, publish.ErrLeft
	}
	found, err := g.earlier.Find(ctx, &w.of, to, began, math.MaxInt64)
	switch {
	case err != nil:
		return 0, err
	case found.Late():
		return 0, publish.ErrLeft // the sweep publishes them behind later ones
	case found.Published == 0 && found.Lowest > 1:
		return 0, publish.ErrLeft // the first ones are expired, or not visible yet
	}
	return found.Published + 1, nil
}
