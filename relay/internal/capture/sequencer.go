package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// Sequencer submits the events of each aggregate in order of sequence number.
//
// The log orders events by write time, which differs where two clocks wrote them:
// a batch has its client's time, a conditional write its ballot's. For an event
// ahead of its turn the sequencer reads the preceding events by key. Log rows are at
// least as old as the confidence window, so preceding events are visible too, unless
// they are exceptionally late. The aggregate waits for them beside its stream (blocked).
type Sequencer struct {
	sink     SweepSink
	blocked  *blocked
	lookup   cdclog.Lookup
	gapWait  time.Duration
	retryMin time.Duration
	log      *slog.Logger
	metrics  *Metrics
}

// NewSequencer returns a sequencer. Its aggregates wait at most until ctx ends.
func NewSequencer(ctx context.Context, cfg *Config, m *Metrics, sink SweepSink, find cdclog.Lookup) *Sequencer {
	s := &Sequencer{
		sink: sink, lookup: find.AtMost(blockedLookups), gapWait: cfg.GapWait, retryMin: cfg.RetryMin, log: cfg.Logger, metrics: m,
	}
	s.blocked = newBlocked(ctx, cfg, func(ctx context.Context, e *blockedEvent) error {
		return s.admit(ctx, e.StoredEvent, e.began, e.settled)
	})
	return s
}

// submit submits the events of a page of a stream, and returns how many of them were submitted before,
// as by the tail reader. An event that is ahead of its turn waits beside the stream, and so do the later
// ones of its aggregate: the publisher accepts each in its turn alone. began is the time from which this
// run reads the stream, in microseconds.
func (s *Sequencer) submit(ctx context.Context, page *sweptPage, began int64) (published int, err error) {
	page.verdicts, err = s.sink.OfferPage(ctx, page.offers, page.verdicts[:0])
	for i, v := range page.verdicts {
		switch o := &page.offers[i]; v {
		case publish.Taken:
		case publish.Repeated:
			published++
		default:
			e := &blockedEvent{StoredEvent: cdclog.StoredEvent{Event: o.Event, Written: o.Written, Err: o.Bad}, began: began, settled: o.Settled}
			if err := s.blocked.add(ctx, e); err != nil {
				return published, err
			}
		}
	}
	return published, err
}

// admit submits the missing events before e in its aggregate, then e.
// began is the time from which this run reads e's stream, in microseconds.
// settled is where the settlement of e goes.
func (s *Sequencer) admit(ctx context.Context, e cdclog.StoredEvent, began int64, settled publish.Settlement) error {
	v, err := s.sink.Offer(ctx, publish.Offer{Event: e.Event, Written: e.Written, Bad: e.Err, By: publish.BySweep, Settled: settled})
	if err != nil || v == publish.Taken || v == publish.Repeated {
		return err
	}
	release, err := s.sink.ClaimPassed(ctx, s.lookup, e.AggregateID)
	if err != nil {
		return err
	}
	defer release()
	next, known := s.sink.Expect(e.AggregateID.UUID())
	if v == publish.Left || !known && (e.Rewritten() || e.FirstWrite() < began) {
		published, err := s.published(ctx, &e, v, began)
		switch {
		case err != nil:
			return err
		case published:
			settled.Settle()
			return nil
		case v == publish.Left:
			_, err = s.sink.Offer(ctx, publish.Offer{
				Event: e.Event, Written: e.Written, Bad: e.Err, By: publish.BySweep, Owner: true, Missing: true, Settled: settled,
			})
			return err
		}
	}
	if !known && e.Sequence > 1 {
		if next, err = s.lead(ctx, e, began); err != nil {
			return err
		}
	}
	if err := s.retry(ctx, &e.Event, func() error { return s.sink.FindGaps(ctx, s.lookup, &e.Event, e.Sequence) }); err != nil {
		return err
	}
	if next > 0 && e.Sequence > next {
		if err := s.fill(ctx, e.Event, next); err != nil {
			return err
		}
	}
	return s.sink.Submit(ctx, e, publish.BySweep, settled)
}

// published reports whether an event that is not in the dedup index is published or was a
// dead letter, and its row was written again. If its aggregate is unknown, the event is probably new, and only a
// quick read is worth it. No topic has one that was written since began and would be in the index:
// it has the number of another one.
//
// Without a proof, an event whose row was written as it was created, since began, is not published:
// a repetition is better than a loss. Any other one is.
func (s *Sequencer) published(ctx context.Context, e *cdclog.StoredEvent, v publish.Verdict, began int64) (published bool, err error) {
	var known, fate earlier.Fate
	read := func() (err error) { fate, err = s.sink.Find(ctx, e); return err }
	if v == publish.Left {
		if known = s.sink.Fate(e, began, e.Written); known == earlier.Unpublished {
			return false, nil
		}
		read = func() (err error) { fate, err = s.sink.Prove(ctx, e, false); return err }
	}
	switch err := s.retry(ctx, &e.Event, read); {
	case err != nil:
		return false, err
	case v == publish.Left && fate == earlier.Doubtful:
		return known == earlier.Doubtful || e.Rewritten(), nil
	}
	return fate.Settled(), nil
}

// patience returns the wait for a missing number of an aggregate. It halves for each
// number missing among the last ones: a writer that skips numbers would otherwise
// delay its events without bound.
func (s *Sequencer) patience(aggregate gocql.UUID) time.Duration {
	return max(s.gapWait>>s.sink.Missing(aggregate), s.gapWait/gapWaitShare)
}

// gapWaitShare is the divisor that bounds patience from below.
const gapWaitShare = 64

// fill submits the events from next up to e. It retries lookups until patience ends.
func (s *Sequencer) fill(ctx context.Context, e outbox.Event, next int64) error {
	wait := s.patience(e.AggregateID.UUID())
	deadline := time.Now().Add(wait)
	for attempt := 1; ; attempt++ {
		var err error
		next, err = s.close(ctx, e, next, !time.Now().Before(deadline))
		s.blocked.read(err)
		if h, ok := errors.AsType[*publish.HandoverError](err); ok {
			return h.Err
		}
		if err != nil && (ctx.Err() != nil || failure.Classify(err) == failure.Fatal) {
			return fmt.Errorf("look up seq %d of aggregate %s: %w", next, e.AggregateID.String(), err)
		}
		if err != nil {
			// A failed lookup proves nothing about the gap, so the wait restarts.
			s.log.Warn("failed to look up a missing event; retrying", "aggregate_id", e.AggregateID.String(), "sequence", next, "attempt", attempt, "err", err)
			deadline = time.Now().Add(wait)
		} else if next == e.Sequence {
			return nil
		}
		if err := retry.Wait(ctx, min(retry.Backoff(s.retryMin, time.Second, attempt), max(time.Until(deadline), s.retryMin))); err != nil {
			return err
		}
	}
}

// errHole ends a lookup at an event that follows a missing one.
var errHole = errors.New("an event is missing")

// close submits the visible events of the gap from next up to e and returns the new
// start of the gap, or e's number if the gap is closed. It ends at a missing event,
// unless timeIsUp is set: then the aggregate skips missing events.
func (s *Sequencer) close(ctx context.Context, e outbox.Event, next int64, timeIsUp bool) (int64, error) {
	pass := func(upTo int64) {
		for ; next < upTo; next++ {
			s.metrics.Gaps.Inc()
			s.log.Error("an event is missing from the outbox table; publishing the later events of its aggregate",
				"aggregate_id", e.AggregateID.String(), "sequence", next, "before", upTo)
		}
	}
	err := s.lookup(ctx, &e, next, e.Sequence, func(f cdclog.StoredEvent) error {
		if f.Sequence > next {
			if !timeIsUp {
				return errHole
			}
			pass(f.Sequence)
		}
		if err := s.recover(ctx, f); err != nil {
			return &publish.HandoverError{Err: err}
		}
		next = f.Sequence + 1
		return nil
	})
	switch {
	case errors.Is(err, errHole):
		return next, nil
	case err == nil && timeIsUp:
		pass(e.Sequence)
	}
	return next, err
}

// lead returns the number with which an aggregate without a dedup entry continues:
// e's own if nothing before it is missing. It submits missed events before that number.
func (s *Sequencer) lead(ctx context.Context, e cdclog.StoredEvent, began int64) (next int64, err error) {
	finder := earlier.Finder{Evidence: s.sink, Lookup: s.lookup}
	var found earlier.Rows
	if err := s.retry(ctx, &e.Event, func() (err error) {
		// No row written after e is forgotten: the stream has not shown it.
		found, err = finder.Find(ctx, &e.Event, e.Sequence, began, e.Written)
		return err
	}); err != nil {
		return 0, err
	}
	if found.Late() {
		if err := s.retry(ctx, &e.Event, func() error {
			return s.lookup(ctx, &e.Event, found.Missed, found.Published, func(f cdclog.StoredEvent) error {
				fate := s.sink.Fate(&f, began, e.Written)
				if !fate.Missed() {
					return nil
				}
				if fate == earlier.Rewritten {
					if found, err := s.sink.Find(ctx, &f); found.Settled() || err != nil {
						return err
					}
				}
				if err := s.recover(ctx, f); err != nil {
					return &publish.HandoverError{Err: err}
				}
				return nil
			})
		}); err != nil {
			return 0, err
		}
	}
	switch {
	case found.Lowest == 0:
		s.sink.Resolve(&e.Event, e.Sequence)
		return e.Sequence, nil // those before it are expired
	case found.Published == 0:
		next = found.Lowest
	default:
		next = found.Published + 1
	}
	s.sink.Resolve(&e.Event, next)
	s.sink.Begins(e.AggregateID.UUID(), next)
	return next, nil
}

// retry calls read until it succeeds, while the database is unavailable.
func (s *Sequencer) retry(ctx context.Context, of *outbox.Event, read func() error) error {
	for attempt := 1; ; attempt++ {
		err := read()
		s.blocked.read(err)
		if err == nil {
			return nil
		}
		if h, ok := errors.AsType[*publish.HandoverError](err); ok {
			return h.Err
		}
		if ctx.Err() != nil || failure.Classify(err) == failure.Fatal {
			return fmt.Errorf("look up events of aggregate %s: %w", of.AggregateID.String(), err)
		}
		s.log.Warn("failed to look up earlier events; retrying", "aggregate_id", of.AggregateID.String(), "attempt", attempt, "err", err)
		if err := retry.Wait(ctx, retry.Backoff(s.retryMin, time.Second, attempt)); err != nil {
			return err
		}
	}
}

// recover submits an event that was read by key. Its log row, if read later, is a
// duplicate.
func (s *Sequencer) recover(ctx context.Context, f cdclog.StoredEvent) error {
	s.log.Debug("event read by key, ahead of the log", "event_id", f.ID.String(), "aggregate_id", f.AggregateID.String(), "sequence", f.Sequence)
	return s.sink.Submit(ctx, f, publish.ByKey, publish.Settlement{})
}
