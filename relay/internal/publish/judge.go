package publish

import (
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// judgeLocked returns the verdict for an event of the stripe, and its item if it is
// already in progress: that of an event whose row had another aggregate is in another
// stripe.
func (p *Publisher) judgeLocked(s *stripe, o *Offer) (v Verdict, it *item) {
	e := &o.Event
	it, published, _ := p.ids.find(e.ID)
	if it != nil || published || p.mu.deadLetters.Has(e.ID) {
		return Repeated, it
	}
	if e.Sequence == 0 {
		return Taken, nil
	}
	if _, busy := s.claims[e.AggregateID]; busy && !o.Owner {
		return Claimed, nil
	}
	l, known := s.line(e.AggregateID)
	if !o.Owner && p.mu.older.HoldsBack(e, o.Written, l, known, s.lines.HasGaps(e.AggregateID)) {
		return Unknown, nil
	}
	switch {
	case o.Missing:
		return Taken, nil
	case !known && (o.Anyway || e.Sequence == 1 && !p.rewrittenLocked(e, o.Written)):
		return Taken, nil
	case !known:
		return Unknown, nil
	case e.Sequence >= l.Next && !o.Owner && s.lines.GapsDue(e.AggregateID, e.Sequence):
		return Ahead, nil // the skipped numbers are looked up again first
	case e.Sequence == l.Next, e.Sequence > l.Next && o.Anyway:
		return Taken, nil
	case e.Sequence > l.Next:
		return Ahead, nil
	case s.lines.IsGap(e.AggregateID, e.Sequence):
		return Taken, nil
	case o.By == ByTail:
		return Left, nil
	case e.Sequence >= l.First && o.Written <= p.ids.horizon(e.ID):
		return Repeated, nil
	case !o.Owner:
		return Left, nil
	}
	return Taken, nil
}

// rewrittenLocked reports whether the row of an event of an unknown aggregate may have been
// written again, and the start may not have read the event's record.
func (p *Publisher) rewrittenLocked(e *outbox.Event, written int64) bool {
	return cdclog.Rewritten(e, written) || !e.CreatedAt.IsZero() && cdclog.Due(e) < p.mu.readFrom
}
