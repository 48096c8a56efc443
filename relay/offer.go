package relay

import (
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// source is who found an event.
type source uint8

const (
	// bySweep is the reader that moves the checkpoint and sees every row of the log.
	bySweep source = iota
	// byTail is the reader that is early. What it does not hand on, the sweep will.
	byTail
	// byKey is the outbox table.
	byKey
	// byBackfill is a scan of it.
	byBackfill
	// byUnknown is that of a dead letter which does not say it.
	byUnknown
)

// verdict is what became of an event that was offered.
type verdict uint8

const (
	// taken: the event goes out.
	taken verdict = iota
	// repeated: it goes out or is out already; it is settled when it is acknowledged.
	repeated
	// ahead: events before it in its aggregate are missing.
	ahead
	// unknown: nothing is known of its aggregate and it is not the first.
	unknown
	// claimed: another caller fills a gap of its aggregate.
	claimed
	// left: it comes behind later ones of its aggregate, and the sweep decides.
	left
)

// offer is an event that was found.
type offer struct {
	event   outbox.Event
	written int64 // write time in microseconds, 0 if unknown
	by      source
	// bad says that the row is no event that can be published, and why.
	bad error
	// owner says that the caller has claimed the aggregate.
	owner bool
	// anyway says that the event goes out though one before it is missing.
	anyway bool
	// missing says that somebody has read the event's topic and not found it: of
	// its number nothing follows.
	missing bool
	// settled is called once the event is acknowledged, from any goroutine; nil
	// if nobody waits.
	settled func()
}

// offer hands on an event if it is its turn. It waits for room in the budget,
// but not for what is out already; an error means that it was not taken.
func (p *publisher) offer(ctx context.Context, o *offer) (v verdict, err error) {
	var size int64
	paid := false
	for {
		p.mu.Lock()
		if p.closed {
			err = failure.ErrStopping
			break
		}
		var it *item
		if v, it = p.judge(o); v != taken {
			settle := p.repeat(o, v, it)
			p.mu.Unlock()
			if paid {
				p.budget.give(size)
			}
			if settle {
				o.settled()
			}
			return v, nil
		}
		if !paid {
			size = sizeOf(&o.event)
			paid = p.budget.try(size)
		}
		if paid {
			p.take(o, size)
			p.mu.Unlock()
			return taken, nil
		}
		p.mu.Unlock()
		if err := p.budget.take(ctx, size); err != nil {
			return v, err
		}
		if o.by == byTail {
			p.tailWaited(time.Now())
		}
		paid = true // and while it waited the event may have come in by another way
	}
	p.mu.Unlock()
	if paid {
		p.budget.give(size)
	}
	return v, err
}

// submit hands on a row, which may be no event, whose turn the caller knows it to be.
func (p *publisher) submit(ctx context.Context, e cdclog.StoredEvent, by source, settled func()) error {
	_, err := p.offer(ctx, &offer{event: e.Event, written: e.Written, bad: e.Err, by: by, owner: true, anyway: true, settled: settled})
	return err
}

// judge says what is to be done with an event; it is the item if the event is
// under way already. Called locked.
func (p *publisher) judge(o *offer) (v verdict, it *item) {
	e := &o.event
	if it = p.items[e.ID]; it != nil || p.memory.has(e.ID) || p.letters.has(e.ID) {
		return repeated, it
	}
	if e.Sequence == 0 {
		return p.judgeByTime(o), nil
	}
	if _, busy := p.claims[e.AggregateID]; busy && !o.owner {
		return claimed, nil
	}
	l, known := p.line(e.AggregateID)
	if !o.owner && p.older.holdsBack(e, o.written, l, known, p.memory.gaps[e.AggregateID] != nil) {
		return unknown, nil
	}
	switch {
	case o.missing:
		return taken, nil
	case !known && (e.Sequence == 1 || o.anyway):
		return taken, nil
	case !known:
		return unknown, nil
	case e.Sequence >= l.next && !o.owner && p.memory.gapsDue(e.AggregateID, e.Sequence):
		return ahead, nil // what it continued without is looked up again first
	case e.Sequence == l.next, e.Sequence > l.next && o.anyway:
		return taken, nil
	case e.Sequence > l.next:
		return ahead, nil
	case p.memory.isGap(e.AggregateID, e.Sequence):
		return taken, nil
	case o.by == byTail:
		return left, nil
	case e.Sequence < l.first || o.written > p.memory.horizon:
		// What is one event is decided by its id, as long as ids are remembered:
		// this one was never handed on, whatever its number.
		return taken, nil
	default:
		return repeated, nil
	}
}

// repeat notes that an event came again. It says whether the caller is to
// settle it. Called locked.
func (p *publisher) repeat(o *offer, v verdict, it *item) (settle bool) {
	if v != repeated {
		return false
	}
	if o.by == bySweep {
		p.metrics.repeated.Inc()
	}
	if it == nil {
		if o.event.Sequence == 0 {
			p.noteAgain(o)
		}
		if o.by == bySweep {
			p.memory.show(o.event.ID, o.written)
		}
		return o.settled != nil
	}
	it.shown = it.shown || o.by == bySweep
	if o.settled != nil {
		it.settled = append(it.settled, o.settled)
	}
	return false
}

// take puts the event into its aggregate's lane. Called locked.
func (p *publisher) take(o *offer, size int64) {
	l := p.lane(o.event.AggregateID)
	switch {
	case o.event.Sequence == 0:
		p.noteTime(l, o)
	case l.line.next > o.event.Sequence:
		p.metrics.late.Inc()
		p.log.Warn("event comes behind a later one of its aggregate", "event_id", o.event.IDString(), "aggregate_id", o.event.AggregateString(), "seq", o.event.Sequence, "next", l.line.next, trace.Attrs(o.event.Headers))
		fallthrough
	default:
		l.line = p.memory.advance(l.id, l.line, o.event.Sequence)
	}
	if o.event.CreatedAt.IsZero() && o.written > 0 {
		o.event.CreatedAt = time.UnixMicro(o.written).UTC()
	}
	if o.by != byBackfill && p.older != nil {
		p.older.took(&o.event, o.written)
	}
	topic, topicErr := p.topic(&o.event)
	if o.bad != nil {
		topicErr = o.bad
	}
	it := &item{by: o.by, scanned: o.by == byBackfill && p.older.old(o.written), event: o.event, written: o.written, topic: topic, topicErr: topicErr, bytes: size, shown: o.by == bySweep}
	if o.bad != nil && p.letters.on() {
		it.death = &death{class: classOf(o.bad), err: o.bad} // also if it is parked or spilled
	} else {
		it.death = p.letters.interrupted(o.event.ID)
	}
	if o.settled != nil {
		it.settled = append(it.one[:0], o.settled)
	}
	l.items = append(l.items, it)
	p.items[o.event.ID] = it
	p.bytes += size
	p.metrics.found[o.by].Inc()
	if o.by == bySweep {
		p.metrics.swept[p.tailed.swept(o)].Inc()
	}
	p.pump(l)
}

func sizeOf(e *outbox.Event) int64 {
	size := int64(len(e.Payload)) + 512
	for k, v := range e.Headers {
		size += int64(len(k) + len(v))
	}
	return size
}

// line returns what is known of an aggregate's sequence. Called locked.
func (p *publisher) line(aggregate gocql.UUID) (line, bool) {
	if l, ok := p.lanes[aggregate]; ok {
		return l.line, true
	}
	return p.memory.line(aggregate)
}

// expect returns the number that the aggregate should go on with, and whether
// anything is known of it.
func (p *publisher) expect(aggregate gocql.UUID) (next int64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, known := p.line(aggregate)
	return l.next, known
}

// lane returns the aggregate's lane. Called locked.
func (p *publisher) lane(aggregate gocql.UUID) *lane {
	l, ok := p.lanes[aggregate]
	if !ok {
		known, _ := p.memory.line(aggregate)
		l = newLane(aggregate, known)
		p.lanes[aggregate] = l
	}
	return l
}

// rest puts away a lane without items. Called locked.
func (p *publisher) rest(l *lane) {
	if len(l.items) > 0 || l.ended != nil || l.writing {
		return
	}
	p.memory.keep(l.id, l.line)
	delete(p.lanes, l.id)
}

// claim waits until nobody else fills a gap of the aggregate and then keeps
// others from handing on events of it, until release.
func (p *publisher) claim(ctx context.Context, aggregate gocql.UUID) (release func(), err error) {
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

// tryClaim is claim for one who does not wait: without release, busy is closed
// when the other is done.
func (p *publisher) tryClaim(aggregate gocql.UUID) (release func(), busy <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.claims[aggregate]; ok {
		return nil, c
	}
	c := make(chan struct{})
	p.claims[aggregate] = c
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.claims, aggregate)
		close(c)
	}, nil
}

// pass notes that the sweep has read the log up to a write time in microseconds.
func (p *publisher) pass(upTo int64, every time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory.pass(upTo, time.Now(), every)
	p.letters.passed = max(p.letters.passed, upTo)
}
