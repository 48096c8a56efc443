package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/again"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// storedEvent is a row of the outbox table with its write time in microseconds.
type storedEvent struct {
	outbox.Event
	written int64
	// bad says that the row cannot be published, and why; Event is what is known of it.
	bad error
}

// lookup reads the events of of's aggregate with from <= seq < to by key, in order,
// and calls each for every one. An aggregate may have a million, so nobody keeps
// more of them than a page. An error of each ends it, and is what it returns.
type lookup func(ctx context.Context, of *outbox.Event, from, to int64, each func(storedEvent) error) error

// one reads event seq; false says that there is none.
func (find lookup) one(ctx context.Context, of *outbox.Event, seq int64) (found storedEvent, ok bool, err error) {
	err = find(ctx, of, seq, seq+1, func(e storedEvent) error {
		found, ok = e, true
		return nil
	})
	return found, ok, err
}

// handingOn is an error of what is done with an event that was looked up.
type handingOn struct{ error }

// Unwrap is the error itself.
func (h handingOn) Unwrap() error { return h.error }

// sequencer hands each aggregate's events on by sequence number.
//
// The log has them by write time, and that is another order wherever two clocks
// wrote them: a batch has its client's time, a conditional write its ballot's.
// An event that is ahead of its turn therefore makes the sequencer read those
// before it by key. What the log shows is as old as the confidence window, so
// those before it are there too, or they are late by any measure.
type sequencer struct {
	publisher *publisher
	lookup    lookup
	gapWait   time.Duration
	retryMin  time.Duration
	log       *slog.Logger
	metrics   *metrics
}

// take hands on the events of one change of a stream; the stream's progress
// passes the change when all of them are acknowledged. It waits while there is
// no room, or while the stream is too far ahead of its oldest unsettled change.
func (s *sequencer) take(ctx context.Context, p *streamProgress, t gocql.UUID, events []storedEvent) error {
	if len(events) == 0 {
		p.idle(t)
		return nil
	}
	since := writeTime(p.start)
	id := p.begin(t, len(events))
	for _, e := range events {
		if err := s.admit(ctx, e, since, func() { p.settle(id) }); err != nil {
			return err
		}
	}
	p.handedOn(t)
	return p.wait(ctx)
}

// admit hands on e, and before it those of its aggregate that are missing.
// since is where this relay began to read e's stream, in microseconds: of an
// aggregate that nothing is known of only events written later can be missing.
// settled is called when e is acknowledged.
func (s *sequencer) admit(ctx context.Context, e storedEvent, since int64, settled func()) error {
	v, err := s.publisher.offer(ctx, &offer{event: e.Event, written: e.written, bad: e.bad, by: bySweep, settled: settled})
	if err != nil || v == taken || v == repeated {
		return err
	}
	release, err := s.publisher.claimPassed(ctx, s.lookup, e.AggregateID)
	if err != nil {
		return err
	}
	defer release()
	next, known, horizon := s.publisher.expect(e.AggregateID)
	switch {
	case known && e.Sequence > next:
		if err := s.fill(ctx, e.Event, next); err != nil {
			return err
		}
	case !known && e.Sequence > 1:
		// The stream has not shown what was written after e, whatever was forgotten.
		if err := s.lead(ctx, e.Event, max(since, min(horizon, e.written))); err != nil {
			return err
		}
	}
	return s.publisher.submit(ctx, e, bySweep, settled)
}

// fill hands on the events from next up to e, looking for them for a while.
func (s *sequencer) fill(ctx context.Context, e outbox.Event, next int64) error {
	deadline := time.Now().Add(s.gapWait)
	for attempt := 1; ; attempt++ {
		var err error
		next, err = s.close(ctx, e, next, !time.Now().Before(deadline))
		if h, ok := errors.AsType[handingOn](err); ok {
			return h.error
		}
		if err != nil && (ctx.Err() != nil || Classify(err) == Fatal) {
			return fmt.Errorf("look up seq %d of aggregate %s: %w", next, e.AggregateString(), err)
		}
		if err != nil {
			// While the database is away nothing is known of the gap.
			s.log.Warn("cannot look up a missing event; trying again", "aggregate_id", e.AggregateString(), "seq", next, "attempt", attempt, "err", err)
			deadline = time.Now().Add(s.gapWait)
		} else if next == e.Sequence {
			return nil
		}
		if err := again.Wait(ctx, backoff(s.retryMin, time.Second, attempt)); err != nil {
			return err
		}
	}
}

// errHole ends a look-up at an event that is ahead of one that is missing.
var errHole = errors.New("an event is missing")

// close hands on what there is of the gap from next up to e and returns where
// the gap begins now; e's own number when there is none. A hole in what is
// found ends it, unless time is up: then the aggregate goes on without.
func (s *sequencer) close(ctx context.Context, e outbox.Event, next int64, timeIsUp bool) (int64, error) {
	pass := func(upTo int64) {
		for ; next < upTo; next++ {
			s.metrics.gaps.Inc()
			s.log.Error("an event is missing from the outbox table; its aggregate goes on without it",
				"aggregate_id", e.AggregateString(), "seq", next, "before", upTo, "waited", s.gapWait)
		}
	}
	err := s.lookup(ctx, &e, next, e.Sequence, func(f storedEvent) error {
		if f.Sequence > next {
			if !timeIsUp {
				return errHole
			}
			pass(f.Sequence)
		}
		if err := s.recover(ctx, f); err != nil {
			return handingOn{err}
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

// lead hands on events of an unknown aggregate that come before e and were
// written after the given time.
func (s *sequencer) lead(ctx context.Context, e outbox.Event, after int64) error {
	from := int64(1)
	for attempt := 1; ; attempt++ {
		err := s.lookup(ctx, &e, from, e.Sequence, func(f storedEvent) error {
			if f.written > after {
				if err := s.recover(ctx, f); err != nil {
					return handingOn{err}
				}
			}
			from = f.Sequence + 1
			return nil
		})
		if err == nil {
			return nil
		}
		if h, ok := errors.AsType[handingOn](err); ok {
			return h.error
		}
		if ctx.Err() != nil || Classify(err) == Fatal {
			return fmt.Errorf("look up events of aggregate %s: %w", e.AggregateString(), err)
		}
		s.log.Warn("cannot look up earlier events; trying again", "aggregate_id", e.AggregateString(), "attempt", attempt, "err", err)
		if err := again.Wait(ctx, backoff(s.retryMin, time.Second, attempt)); err != nil {
			return err
		}
	}
}

// recover hands on an event that was read by key. Its row in the log, if it is
// still to come, finds it handed on.
func (s *sequencer) recover(ctx context.Context, f storedEvent) error {
	s.log.Debug("event read by key, ahead of the log", "event_id", f.IDString(), "aggregate_id", f.AggregateString(), "seq", f.Sequence)
	return s.publisher.submit(ctx, f, byKey, nil)
}

// lookupPage is how many rows one answer to a look-up holds at most.
const lookupPage = 500

// cqlLookup looks up events in the outbox table.
func cqlLookup(session *gocql.Session, table outbox.Table) lookup {
	return func(ctx context.Context, of *outbox.Event, from, to int64, each func(storedEvent) error) error {
		stmt, args := table.SelectByKey(of, from, to)
		iter := session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.LocalQuorum).PageSize(lookupPage).Iter()
		sc := table.Scanner()
		var written int64
		for iter.Scan(append([]any{&written}, sc.Dest()...)...) {
			e, err := sc.Event()
			if err := each(badRow(&table, storedEvent{e, written, err}, 0)); err != nil {
				_ = iter.Close() // the caller stops; what the query says is of no interest
				return err
			}
		}
		return iter.Close()
	}
}
