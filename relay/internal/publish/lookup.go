package publish

import (
	"context"
	"errors"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
)

// Expect returns the next number of the aggregate, and whether the aggregate is known: one
// whose numbers are in doubt is not.
func (p *Publisher) Expect(aggregate gocql.UUID) (next int64, known bool) {
	p.ask(func(c *cell) {
		var l dedup.Line
		l, known = c.line(aggregate)
		next, known = l.Next, known && !c.lines.Doubted(aggregate)
	})
	return next, known
}

// Resolve ends the doubt about the numbers of an aggregate, by its rows: it continues with
// next. It has no effect without a doubt. The caller has claimed the aggregate.
func (p *Publisher) Resolve(of *outbox.Event, next int64) {
	p.ask(func(c *cell) {
		aggregate := of.AggregateID.UUID()
		if !c.lines.Doubted(aggregate) {
			return
		}
		l, _ := c.line(aggregate)
		if line, again := c.lines.Trust(aggregate, l, next); again {
			c.keepLine(aggregate, line)
			c.report(func(to *Publisher) { to.conflicts.numbersAgain(of, next, l.Next) })
		}
	})
}

// Missing returns how many of the last numbers of an aggregate are missing.
func (p *Publisher) Missing(aggregate gocql.UUID) (n int) {
	p.ask(func(c *cell) {
		l, _ := c.line(aggregate)
		n = c.lines.Missing(aggregate, l.Next)
	})
	return n
}

// FindGaps queries the skipped numbers of an aggregate if a lookup is due before event
// seq, and offers the events that became visible since. A lookup is one query. The caller
// must have claimed the aggregate.
func (p *Publisher) FindGaps(ctx context.Context, find cdclog.Lookup, of *outbox.Event, seq int64) error {
	aggregate, due := of.AggregateID.UUID(), false
	var from, to int64
	p.ask(func(c *cell) {
		if due = c.lines.GapsDue(aggregate, seq, c.now); due {
			from, to = c.lines.GapRange(aggregate)
		}
	})
	if !due {
		return nil
	}
	err := find(ctx, of, from, to, func(f cdclog.StoredEvent) error {
		missed := false
		p.ask(func(c *cell) { missed = c.lines.IsGap(aggregate, f.Sequence) })
		if !missed {
			return nil
		}
		if err := p.Submit(ctx, f, ByKey, Settlement{}); err != nil {
			return &HandoverError{err}
		}
		return nil
	})
	if err == nil {
		p.ask(func(c *cell) { c.lines.LookedUp(aggregate, seq, c.now) })
	}
	return err
}

// HandoverError is the error of offering an event that a lookup returned, as opposed to
// an error of the lookup.
type HandoverError struct{ Err error }

// Error returns the text of the wrapped error.
func (h *HandoverError) Error() string { return h.Err.Error() }

// Unwrap returns the wrapped error.
func (h *HandoverError) Unwrap() error { return h.Err }

// Fate returns whether a row of an aggregate was accepted, as far as this run knows. The clock that
// dates an event may be ahead of the one that dates its row: a row that was written again may have
// been written first before its event's creation.
func (p *Publisher) Fate(f *cdclog.StoredEvent, began, remembered int64) (fate earlier.Fate) {
	p.ask(func(c *cell) { fate = c.fate(f, began, remembered) })
	return fate
}

func (c *cell) fate(f *cdclog.StoredEvent, began, remembered int64) earlier.Fate {
	it, published, in := c.ids.find(f.ID.UUID())
	known := max(began, min(c.ids.index.Horizon(), remembered)) // later rows would be in the dedup index
	switch {
	case it != nil, published && bool(in):
		return earlier.Published
	case published, c.dead.Has(f.ID.UUID()):
		return earlier.DeadLetter
	case f.Written > known && (f.Rewritten() || !f.CreatedAt.IsZero() && f.FirstWrite()-minClockMargin.Microseconds() <= known):
		return earlier.Rewritten
	case f.Written > known:
		return earlier.Unpublished
	default:
		return earlier.Doubtful
	}
}

// Prove calls the prover; without one the event is doubtful.
func (p *Publisher) Prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (earlier.Fate, error) {
	if p.proofs == nil {
		return earlier.Doubtful, nil
	}
	return p.proofs.Prove(ctx, f, quick)
}

// Find calls the prover; without one the event is doubtful.
func (p *Publisher) Find(ctx context.Context, f *cdclog.StoredEvent) (earlier.Fate, error) {
	if p.proofs == nil {
		return earlier.Doubtful, nil
	}
	return p.proofs.Find(ctx, f)
}

// FateOfDeadLetter returns the fate of an event that has a dead letter, and Doubtful for one
// without. A dead letter that was replayed in the order of its aggregate is published, and so
// are the events before it. Any other one is added to the dedup index: no reader publishes it.
// A dead letter of another event with its id is reported.
func (p *Publisher) FateOfDeadLetter(ctx context.Context, e *outbox.Event) (earlier.Fate, error) {
	l, err := p.DeadLetter(ctx, e.ID.UUID())
	if l == nil {
		return earlier.Doubtful, err
	}
	if isOfAnother(l, e) {
		p.conflicts.idTwice(e)
	}
	sent := l.Outcome.Kind == dlq.OutcomeReplayed || l.Outcome.Kind == dlq.OutcomeRedirected || l.Outcome.Kind == dlq.OutcomeFound
	if sent && !l.Unblocked && !p.cfg.relaxed(l.EventType) {
		return earlier.Published, nil
	}
	p.ask(func(c *cell) { c.ids.addUnsent(e.ID.UUID(), l.WrittenAt) })
	return earlier.DeadLetter, nil
}

// Begins sets the next number of an unknown aggregate, so that skipped numbers are
// recorded.
func (p *Publisher) Begins(aggregate gocql.UUID, next int64) {
	p.ask(func(c *cell) {
		if _, known := c.line(aggregate); !known {
			c.lines.Keep(aggregate, dedup.Line{First: next, Next: next})
		}
	})
}

// Indexed reports whether the dedup index contains an event that is not in progress,
// and whether that event is known to be in its topic.
func (p *Publisher) Indexed(id gocql.UUID) (indexed, inTopic bool) {
	p.ask(func(c *cell) {
		_, published, in := c.ids.find(id)
		indexed, inTopic = published, bool(in)
	})
	return indexed, inTopic
}

// Forget removes an event from the dedup index.
func (p *Publisher) Forget(id gocql.UUID) { p.ask(func(c *cell) { c.ids.index.Forget(id) }) }

// MemoryFull reports whether the tail reader has to wait for the sweep reader. It logs
// when the dedup index becomes nearly full and when it has room again.
func (p *Publisher) MemoryFull() bool {
	events, limit := p.hold(), p.cfg.Share.Events()
	if near, changed := p.near.Update(events, limit); changed {
		if near {
			p.log.Warn("dedup index is nearly full; at the limit the tail reader waits for the sweep reader: raise relay.dedup_memory_bytes", "events", events, "limit", limit)
		} else {
			p.log.Info("dedup index has room again", "events", events, "limit", limit)
		}
	}
	return events >= limit
}

// hold records in the share how many events the sweep reader has not read, and returns it.
func (p *Publisher) hold() int {
	var fresh int
	p.ask(func(c *cell) { fresh = c.ids.index.Fresh() })
	p.cfg.Share.Hold(fresh)
	return fresh
}

// Seed adds published events that were written before the given time, by the clocks of the
// writers. They contain all that were created at since or later.
func (p *Publisher) Seed(found *dedup.Found, since, before time.Time) {
	p.ask(func(c *cell) {
		c.ids.index.Seed(found, before.UnixMicro(), c.now)
		for aggregate, l := range found.Lines() {
			c.lines.Keep(aggregate, l)
		}
		c.readFrom, c.readUntil = since.UnixMicro(), before.UnixMicro()
	})
}

// IsDeadLetter reports whether the event is an open dead letter.
func (p *Publisher) IsDeadLetter(event gocql.UUID) (is bool) {
	p.ask(func(c *cell) { is = c.dead.Has(event) })
	return is
}

// DeadLetter reads the dead letter of an event of the table. It returns nil without an
// error if there is none.
func (p *Publisher) DeadLetter(ctx context.Context, event gocql.UUID) (*dlq.DeadLetter, error) {
	if !p.cfg.writesDeadLetters() {
		return nil, nil
	}
	l, err := p.cfg.DeadLetters.Read(ctx, event)
	if errors.Is(err, dlq.ErrNotFound) || err == nil && l.Table != p.cfg.tableName() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &l, nil
}

// whenSettled tells settled once the event is no longer in progress, and never if it waits in the
// log.
func (p *Publisher) whenSettled(e *outbox.Event, settled Settlement) {
	p.ask(func(c *cell) {
		if it, _, _ := c.ids.find(e.ID.UUID()); it != nil {
			it.addSettlement(settled)
		} else if !c.isPostponed(e) {
			c.settleTo(settled)
		}
	})
}

// ErrLeft means that the tail reader cannot prove quickly whether earlier events are
// published: the sweep reader decides.
var ErrLeft = errors.New("left to the sweep reader")
