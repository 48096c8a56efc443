package publish

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/budget"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Source is the reader that found an event.
type Source uint8

const (
	// BySweep is the sweep reader, which moves the checkpoint and reads every row of the log.
	BySweep Source = iota
	// ByTail is the tail reader. The sweep reader offers the events that it skips.
	ByTail
	// ByKey is a read of the outbox table by key.
	ByKey
	// ByBackfill is a scan of the outbox table.
	ByBackfill
	// byUnknown is the source of a dead letter whose metadata lacks it.
	byUnknown
)

// Verdict is the result of an offer.
type Verdict uint8

const (
	// Taken: the event is accepted.
	Taken Verdict = iota
	// Repeated: the event is in progress or published; it is settled when it is acknowledged.
	Repeated
	// Ahead: earlier events of its aggregate are missing.
	Ahead
	// Unknown: its aggregate is unknown and it is not the first event.
	Unknown
	// Claimed: another caller fills a gap of its aggregate.
	Claimed
	// Left: later events of its aggregate were accepted. It is late, or was published,
	// forgotten and written again: the sweep reader proves which.
	Left
)

// Offer is an event to be published.
type Offer struct {
	Event   outbox.Event
	Written int64 // write time in microseconds, 0 if unknown
	By      Source
	// Bad is the reason why the row is not a valid event; nil if it is valid.
	Bad error
	// Owner reports that the caller has claimed the aggregate.
	Owner bool
	// Anyway publishes the event although an earlier one is missing.
	Anyway bool
	// Missing reports that the event's topic was read and does not contain it: its
	// number proves nothing.
	Missing bool
	// Again reports that the relay has published the event, and its topic has lost it.
	Again bool
	// Settled, if not nil, is called from any goroutine once the event is acknowledged.
	Settled func()
}

// Offer accepts an event if it is next in its aggregate. It waits for room in the
// budget, except for a published event; an error means that it was not accepted. An event for a
// gated partition is accepted and not kept: it is never settled, and the next start reads it. o is a
// value, because a pointer that is passed to the method of an interface escapes to the heap.
func (p *Publisher) Offer(ctx context.Context, o Offer) (v Verdict, err error) {
	var size int64
	paid := false
	s := p.mu.of(o.Event.AggregateID.UUID())
	var lock sync.Locker = s
	for {
		lock.Lock()
		if p.mu.closed {
			err = failure.ErrStopping
			break
		}
		var it *item
		if p.postponesLocked(s, &o) {
			v = Taken
			break
		}
		if v, it = p.judgeLocked(s, &o); v != Taken {
			if lock == s && it != nil && p.mu.of(it.event.AggregateID.UUID()) != s {
				s.Unlock()
				lock = &p.mu.stripes
				continue
			}
			settle := p.repeatLocked(s, &o, v, it)
			lock.Unlock()
			if paid {
				p.budget.Give(size)
			}
			if settle {
				o.Settled()
			}
			return v, nil
		}
		if !paid {
			size = budget.SizeOf(&o.Event)
			paid = p.budget.Try(size)
		}
		if paid {
			l, taken := p.takeLocked(s, &o, size)
			more := taken && p.pump(l, lock != s)
			lock.Unlock()
			if !taken {
				continue // the event was just offered with another aggregate
			}
			if more {
				p.pumpAll(l)
			}
			return Taken, nil
		}
		lock.Unlock()
		if err := p.budget.Take(ctx, size); err != nil {
			return v, err
		}
		if o.By == ByTail {
			p.tailed.Waited(time.Now())
		}
		paid = true // while it waited, another caller may have offered the event
	}
	lock.Unlock()
	if paid {
		p.budget.Give(size)
	}
	return v, err
}

// judgeLocked returns the verdict for an event of the stripe, and its item if it is
// already in progress: that of an event whose row had another aggregate is in another
// stripe.
func (p *Publisher) judgeLocked(s *stripe, o *Offer) (v Verdict, it *item) {
	e := &o.Event
	it, published, _ := p.ids.find(e.ID.UUID())
	if it != nil || published || p.mu.deadLetters.Has(e.ID.UUID()) {
		return Repeated, it
	}
	if e.Sequence == 0 {
		return Taken, nil
	}
	if _, busy := s.claims[e.AggregateID.UUID()]; busy && !o.Owner {
		return Claimed, nil
	}
	l, known := s.line(e.AggregateID.UUID())
	if !o.Owner && p.mu.older.HoldsBack(e, o.Written, l, known, s.lines.HasGaps(e.AggregateID.UUID())) {
		return Unknown, nil
	}
	switch {
	case o.Missing:
		return Taken, nil
	case !known && (o.Anyway || e.Sequence == 1 && !p.rewrittenLocked(e, o.Written)):
		return Taken, nil
	case !known, !o.Owner && e.Sequence >= l.Next && s.lines.Doubted(e.AggregateID.UUID()):
		return Unknown, nil
	case e.Sequence >= l.Next && !o.Owner && s.lines.GapsDue(e.AggregateID.UUID(), e.Sequence):
		return Ahead, nil // the skipped numbers are looked up again first
	case e.Sequence == l.Next, e.Sequence > l.Next && o.Anyway:
		return Taken, nil
	case e.Sequence > l.Next:
		return Ahead, nil
	case s.lines.IsGap(e.AggregateID.UUID(), e.Sequence):
		return Taken, nil
	case o.By == ByTail || !o.Owner:
		s.lines.Doubt(e.AggregateID.UUID())
		return Left, nil
	case e.Sequence >= l.First && o.Written <= p.ids.horizon(e.ID.UUID()) && !s.lines.Doubted(e.AggregateID.UUID()):
		return Repeated, nil
	}
	return Taken, nil
}

// rewrittenLocked reports whether the row of an event of an unknown aggregate may have been
// written again, and the start may not have read the event's record.
func (p *Publisher) rewrittenLocked(e *outbox.Event, written int64) bool {
	return cdclog.Rewritten(e, written) || !e.CreatedAt.IsZero() && cdclog.Due(e) < p.mu.readFrom
}

// Submit accepts a row, which may be an invalid event. The caller ensures that it is
// next in its aggregate.
func (p *Publisher) Submit(ctx context.Context, e cdclog.StoredEvent, by Source, settled func()) error {
	_, err := p.Offer(ctx, Offer{Event: e.Event, Written: e.Written, Bad: e.Err, By: by, Owner: true, Anyway: true, Settled: settled})
	return err
}

// SubmitMissing is Submit for a row that was read by key, and whose event was found in no
// topic. again reports that the relay has published it.
func (p *Publisher) SubmitMissing(ctx context.Context, e cdclog.StoredEvent, again bool, settled func()) error {
	_, err := p.Offer(ctx, Offer{Event: e.Event, Written: e.Written, Bad: e.Err, By: ByKey, Owner: true, Anyway: true, Missing: true, Again: again, Settled: settled})
	return err
}

// repeatLocked records a repeated event and reports whether the caller must settle it.
func (p *Publisher) repeatLocked(s *stripe, o *Offer, v Verdict, it *item) (settle bool) {
	if v != Repeated {
		return false
	}
	if o.By == BySweep {
		p.Metrics.Repeated.Inc()
	}
	if it == nil && p.isUnexplainedLocked(s, o) { // before the event counts as accepted
		p.conflicts.suspect(o)
	}
	if o.Owner && o.Event.Sequence > 0 {
		s.advance(o.Event.AggregateID.UUID(), o.Event.Sequence)
	}
	if it == nil {
		first := o.By == BySweep && p.ids.show(o.Event.ID.UUID(), o.Written)
		if o.Event.Sequence == 0 {
			if _, published, _ := p.ids.find(o.Event.ID.UUID()); published {
				p.lateBy(o, s.noteRepeated(o, first && o.Written <= p.mu.readUntil))
			}
		}
		return o.Settled != nil
	}
	if (it.event.AggregateID != o.Event.AggregateID || it.event.Sequence != o.Event.Sequence) && o.Bad == nil && it.topicErr == nil {
		p.conflicts.idTwice(&o.Event)
	}
	it.shown = it.shown || o.By == BySweep
	if o.Settled != nil {
		it.settled = append(it.settled, o.Settled)
	}
	return false
}

// takeLocked puts the event into its aggregate's lane. It returns false if the event is in
// progress or published: it was offered with another aggregate since it was judged.
func (p *Publisher) takeLocked(s *stripe, o *Offer, size int64) (l *lane, taken bool) {
	if o.Event.CreatedAt.IsZero() && o.Written > 0 {
		o.Event.CreatedAt = time.UnixMicro(o.Written).UTC()
	}
	if o.Bad == nil {
		limitDelay(&o.Event)
	}
	topic, topicErr := p.names.Of(&o.Event)
	if o.Bad != nil {
		topicErr = o.Bad
	}
	it := &item{by: o.By, scanned: o.By == ByBackfill && p.mu.older.Old(o.Written), event: o.Event, written: o.Written, captured: p.spans.Now(), topic: topic, topicErr: topicErr, bytes: size, shown: o.By == BySweep}
	if o.Bad != nil && p.table.exists() {
		it.cause = &deadLetterCause{class: classOf(o.Bad), err: o.Bad} // including a blocked or spilled one
	} else {
		it.cause = p.mu.deadLetters.interrupted(o.Event.ID.UUID())
	}
	if o.Settled != nil {
		it.settled = append(it.one[:0], o.Settled)
	}
	if !p.ids.begin(it) {
		return nil, false
	}
	l = s.lane(o.Event.AggregateID.UUID(), p.producer)
	switch {
	case o.Event.Sequence == 0:
		p.lateBy(o, noteTime(l, o))
	case l.line.Next > o.Event.Sequence:
		if !o.Again && o.Event.Sequence >= l.line.First && !s.lines.IsGap(l.id, o.Event.Sequence) {
			p.conflicts.numberTwice(&o.Event)
		}
		p.Metrics.Late.Inc()
		p.log.Warn("event accepted after a later one of its aggregate", "event_id", o.Event.ID.String(), "aggregate_id", o.Event.AggregateID.String(), "sequence", o.Event.Sequence, "next", l.line.Next, trace.Attrs(o.Event.Headers))
		fallthrough
	default:
		l.line = s.lines.Advance(l.id, l.line, o.Event.Sequence)
	}
	if o.By != ByBackfill && p.mu.older != nil {
		p.mu.older.Took(&o.Event, o.Written)
	}
	l.items = append(l.items, it)
	p.Metrics.Found[o.By].Inc()
	if o.By == BySweep {
		p.Metrics.Swept[p.tailed.Cause(o.Event.AggregateID.UUID(), o.Written)].Inc()
	}
	return l, true
}

// limitDelay sets the time at which an event is due to MaxDelay from now if it is later: the clock
// that dated the event is ahead, and its aggregate waits until then.
func limitDelay(e *outbox.Event) {
	if last := time.Now().Add(outbox.MaxDelay); e.DeliverAt.After(last) {
		e.DeliverAt = last
	}
}

// Claim waits until no other caller fills a gap of the aggregate. Until release is
// called, it prevents other callers from publishing events of the aggregate.
func (p *Publisher) Claim(ctx context.Context, aggregate gocql.UUID) (release func(), err error) {
	for {
		release, busy := p.tryClaim(aggregate)
		if release != nil {
			return release, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryClaim is Claim without waiting. If release is nil, another caller has the claim,
// and busy is closed when that caller releases it.
func (p *Publisher) tryClaim(aggregate gocql.UUID) (release func(), busy <-chan struct{}) {
	s := p.mu.lock(aggregate)
	defer s.Unlock()
	if c, ok := s.claims[aggregate]; ok {
		return nil, c
	}
	return p.claimLocked(s, aggregate), nil
}

// claimLocked claims an aggregate of the stripe that nobody has claimed.
func (p *Publisher) claimLocked(s *stripe, aggregate gocql.UUID) (release func()) {
	c := make(chan struct{})
	s.claims[aggregate] = c
	return func() {
		s.Lock()
		defer s.Unlock()
		delete(s.claims, aggregate)
		close(c)
	}
}

// Pass records that the sweep has read the log up to a write time in microseconds.
func (p *Publisher) Pass(upTo int64, every time.Duration) {
	p.ids.pass(upTo, time.Now(), every)
	p.hold()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.deadLetters.passed = max(p.mu.deadLetters.passed, upTo)
}

// settleLocked removes an item that is published or a dead letter, and calls its settled
// functions.
func (p *Publisher) settleLocked(l *lane, it *item, published bool) {
	it.state = acked
	if i := slices.Index(l.items, it); i > 0 { // after records that the producer has
		l.items = slices.Delete(l.items, i, i+1)
	}
	l.pop()
	// Under the lock, before the item counts as done: a caller that waits for the
	// last event saves the checkpoints next.
	for _, f := range it.settled {
		f()
	}
	p.ids.end(it, published)
}

// lateBy counts an event that is published after a later one of its aggregate, unless by
// is 0; o is either of the two.
func (p *Publisher) lateBy(o *Offer, by int64) {
	if by == 0 {
		return
	}
	p.Metrics.Late.Inc()
	p.log.Warn("event published after a later one of its aggregate", "event_id", o.Event.ID.String(), "aggregate_id", o.Event.AggregateID.String(),
		"by", time.Duration(by)*time.Microsecond, trace.Attrs(o.Event.Headers))
}
