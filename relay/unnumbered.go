package relay

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// Events of a table without numbers are known by their ids alone, and their
// order is that of the log, by cdc$time. Where a line counts numbers, theirs has
// the write time of the last one in next.

// judgeByTime says what is to be done with an event without a number that is
// not known to be out. Nobody waits for one before it: who offers keeps the order.
func (p *publisher) judgeByTime(o *offer) verdict {
	if o.by == byTail && o.written > 0 && o.written <= p.memory.horizon {
		return left // it may be out and forgotten; the sweep knows where it is
	}
	return taken
}

// noteTime notes that the lane takes an event without a number. Called locked.
func (p *publisher) noteTime(l *lane, o *offer) {
	if o.written > 0 && o.written < l.line.next {
		p.late(o, l.line.next-o.written)
	}
	l.line.next = max(l.line.next, o.written)
}

// noteAgain notes the write time of an event that was published before, by this process
// or an earlier one: after a start it is what is known of its aggregate. If an older
// event was taken since the start, that one was late. Called locked.
func (p *publisher) noteAgain(o *offer) {
	if o.written == 0 || !p.memory.has(o.event.ID) {
		return
	}
	l, _ := p.line(o.event.AggregateID)
	if o.written <= l.next {
		return
	}
	if l.next > 0 {
		p.late(o, o.written-l.next)
	}
	l.next = o.written
	if lane, ok := p.lanes[o.event.AggregateID]; ok {
		lane.line = l
	} else {
		p.memory.keep(o.event.AggregateID, l)
	}
}

// late counts an event that is published behind a later one of its aggregate; o is
// either of them.
func (p *publisher) late(o *offer, by int64) {
	p.metrics.late.Inc()
	p.log.Warn("event published behind a later one of its aggregate", "event_id", o.event.IDString(), "aggregate_id", o.event.AggregateString(),
		"by", time.Duration(by)*time.Microsecond, trace.Attrs(o.event.Headers))
}
