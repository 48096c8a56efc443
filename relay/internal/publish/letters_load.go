package publish

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// OpenDeadLetters are the open dead letters at the relay's start.
type OpenDeadLetters struct {
	entries []dlq.ChainEntry
	begun   map[gocql.UUID]struct{} // as in letters
	// since is when the first replay began of which the end is not known, zero if
	// there is none: from there on the topics say whether the event is in them.
	Since time.Time
}

// untilRead calls read until it succeeds, and reports in the meantime that it cannot. Its
// error is of class Fatal, or the cause of ctx's end.
type untilRead func(ctx context.Context, cannot string, read func() error) error

// minClockMargin is assumed for the difference between clocks where read-back is off.
const minClockMargin = 30 * time.Second

// LoadDeadLetters reads the open dead letters, so that their aggregates' later
// events wait behind them again.
func (p *Publisher) LoadDeadLetters(ctx context.Context, own *cdclog.Portion, until untilRead) (*OpenDeadLetters, error) {
	d := &OpenDeadLetters{}
	if !p.letters.on() {
		return d, nil
	}
	if err := until(ctx, "cannot read the dead letters; nothing is published before that", func() error {
		d.entries, d.begun, d.Since = d.entries[:0], make(map[gocql.UUID]struct{}), time.Time{}
		err := p.letters.store.ChainsAndBegun(ctx, p.letters.table, func(e dlq.ChainEntry) error {
			if e.Status.Open() && p.ownLetter(own, e.EventID, e.AggregateID, e.WrittenAt) {
				d.entries = append(d.entries, e)
			}
			return nil
		}, func(e dlq.ChainEntry) {
			if own.HasText(e.AggregateID) {
				d.begun[e.EventID] = struct{}{}
			}
		})
		if err == nil {
			err = d.claims(ctx, p.letters.store)
		}
		return err
	}); err != nil {
		return nil, err
	}
	d.note(p)
	return d, nil
}

// ownLetter says whether an open letter is one of this shard's. What another relay
// replays though its row may come here again counts as out.
func (p *Publisher) ownLetter(own *cdclog.Portion, event gocql.UUID, aggregate string, written int64) bool {
	if own.HasText(aggregate) {
		return true
	}
	if byItself(event, aggregate) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.memory.has(event) {
			p.memory.addUnsent(event, written)
		}
	}
	return false
}

// LoadSettled notes the dead letters that were settled and whose rows the log, or
// a scan of the outbox table, may show again: what an operator has discarded is
// in no topic, and must not get there.
//
// An event becomes a dead letter after it was written, so only those are of
// interest that died after the oldest row that may come; all, if since is zero.
func (p *Publisher) LoadSettled(ctx context.Context, own *cdclog.Portion, since time.Time, until untilRead) error {
	if !p.letters.on() {
		return nil
	}
	if !since.IsZero() {
		since = since.Add(-max(p.cfg.ReadBackMargin, minClockMargin)) // clocks differ
	}
	return until(ctx, "cannot read the dead letters that were settled; nothing is published before that", func() error {
		return p.trySettled(ctx, own, since)
	})
}

func (p *Publisher) trySettled(ctx context.Context, own *cdclog.Portion, since time.Time) error {
	most, n := max(p.cfg.MaxRememberedEvents/8, 1), 0
	filter := dlq.Filter{Status: []dlq.Status{dlq.Resolved, dlq.Archived}, Since: since}
	return p.letters.store.List(ctx, filter, func(l *dlq.DeadLetter) error { // the newest first
		if l.Table != p.letters.table || !own.HasText(l.AggregateID) {
			return nil
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.memory.has(l.EventID) {
			return nil // it was read back
		}
		if n++; n > most {
			p.log.Warn("more dead letters were settled than are remembered; the oldest may be published when their rows come again", "remembered", most)
			return dlq.ErrStop
		}
		p.memory.addUnsent(l.EventID, l.WrittenAt)
		return nil
	})
}

// note builds the chains.
func (d *OpenDeadLetters) note(p *Publisher) {
	slices.SortStableFunc(d.entries, func(a, b dlq.ChainEntry) int {
		return cmp.Or(cmp.Compare(a.AggregateID, b.AggregateID), cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.WrittenAt, b.WrittenAt),
			a.FirstFailedAt.Compare(b.FirstFailedAt)) // events of one batch have one write time
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.letters.begun = d.begun
	for i := range d.entries {
		e := &d.entries[i]
		key := outbox.IDOf(e.AggregateID)
		strict := !e.Released && !p.cfg.relaxed(e.EventType)
		if !strict {
			key = e.EventID
		}
		// What is behind a spilled letter was spilled too, as a rule: the limit is
		// for both, or every restart in an outage would allow as many again.
		spill := e.ErrorClass == ClassBreakerOpen || e.ErrorClass == ClassAttemptsUsed
		if c, ok := p.letters.chains[key]; ok && e.ErrorClass == ClassBehind {
			spill = p.letters.known[c.head().id].spill
		}
		p.letters.add(key, strict, letterRef{
			id: e.EventID, seq: e.Sequence, at: notBefore(atOfEntry(e, false), e.DeliverAt), group: p.letters.group(e.Rule, e.FailureKey),
		}, spill)
	}
	// A chain whose first letter follows an event that is none: either that was settled
	// since, or a relay before this one had it with its producer when it ended.
	for i := range d.entries {
		e := &d.entries[i]
		if c, ok := p.letters.chains[outbox.IDOf(e.AggregateID)]; ok && c.head().id == e.EventID && e.ErrorClass == ClassBehind && e.Sequence > 1 {
			c.head().after = e.WrittenAt
		}
	}
	if n := len(d.entries); n > 0 {
		p.log.Info("dead letters wait", "letters", n, "chains", len(p.letters.chains))
	}
}

// atOfEntry is when a letter is replayed; asked says that an operator wants it.
func atOfEntry(e *dlq.ChainEntry, asked bool) int64 {
	switch e.Status {
	case dlq.Manual, dlq.Failed:
		return atOperator
	case dlq.Processing:
		return e.ClaimedUntil.UnixMilli()
	case dlq.Parked:
		return atOnce
	}
	if !asked && (e.Strategy == dlq.StrategyBreakerClose || e.Strategy == "" && e.ErrorClass == ClassBreakerOpen) {
		return atBreaker
	}
	if e.NextAttempt.IsZero() {
		return atOnce
	}
	return e.NextAttempt.UnixMilli()
}

// claims finds out when the replays began of which the end is not known.
func (d *OpenDeadLetters) claims(ctx context.Context, store *dlq.Store) error {
	for i := range d.entries {
		e := &d.entries[i]
		if e.Status != dlq.Processing {
			continue
		}
		history, err := store.History(ctx, e.EventID)
		if err != nil {
			return err
		}
		began := e.FirstFailedAt
		for _, c := range history {
			if c.Action == dlq.ActionClaim {
				began = c.At
			}
		}
		if d.Since.IsZero() || began.Before(d.Since) {
			d.Since = began
		}
	}
	return nil
}

// Know tells the publisher, once the topics are read back, what the letters say of
// their aggregates.
func (d *OpenDeadLetters) Know(p *Publisher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range d.entries {
		e := &d.entries[i]
		// Of an aggregate that the topics say nothing of a letter says nothing
		// either: others may have passed it.
		if agg := outbox.IDOf(e.AggregateID); e.Sequence > 0 {
			if known, ok := p.memory.line(agg); ok {
				if c := p.letters.chains[agg]; c != nil && c.head().id == e.EventID && known.next == e.Sequence {
					c.head().after = 0 // the one before it is in its topic
				}
				p.memory.keep(agg, p.memory.advance(agg, known, e.Sequence))
			}
		}
	}
}

// Settle decides about the replays that a relay before this one had under way,
// once the topics are read back. It comes before all replays, and nothing else
// waits for it: until the database says yes, these letters hold back their own
// aggregates alone.
func (d *OpenDeadLetters) Settle(ctx context.Context, r *Replayer) error {
	for ; len(d.entries) > 0; d.entries = d.entries[1:] {
		e := &d.entries[0]
		switch {
		case e.Status != dlq.Processing:
		case r.isOut(e.EventID):
			if !r.insistUntil(ctx, e.EventID, "resolve", func() error {
				return r.p.letters.store.Resolve(ctx, e.EventID, e.ClaimedBy, dlq.Outcome{Kind: dlq.OutcomeFound, Note: "found in its topic at the relay's start"})
			}) {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				continue // somebody else has changed it
			}
			r.metrics.Replays.WithLabelValues(strategyLabel(e.Strategy), "found").Inc()
			r.drop(e.EventID)
		case e.ClaimedBy == r.owner:
			if !r.insistUntil(ctx, e.EventID, "give back", func() error {
				return r.p.letters.store.Unclaim(ctx, e.EventID, e.ClaimedBy, "the relay started again, and it is not in its topic")
			}) {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				continue
			}
			r.later(e.EventID, atOnce)
		}
	}
	d.entries = nil
	return nil
}
