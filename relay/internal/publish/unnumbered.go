package publish

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// Events of a table without numbers are known by their ids alone, and their
// order is that of the log, by cdc$time. Where a line counts numbers, theirs has
// the write time of the last one in next.

// judgeByTime says what is to be done with an event without a number that is
// not known to be out. Nobody waits for one before it: who offers keeps the order.
func (p *Publisher) judgeByTime(o *Offer) verdict {
	if o.By == ByTail && o.Written > 0 && o.Written <= p.memory.horizon {
		return Left // it may be out and forgotten; the sweep knows where it is
	}
	return Taken
}

// noteTime notes that the lane takes an event without a number. Called locked.
func (p *Publisher) noteTime(l *lane, o *Offer) {
	if o.Written > 0 && o.Written < l.line.next {
		p.late(o, l.line.next-o.Written)
	}
	l.line.next = max(l.line.next, o.Written)
}

// noteAgain notes the write time of an event that was published before, by this process
// or an earlier one: after a start it is what is known of its aggregate. If an older
// event was taken since the start, that one was late. Called locked.
func (p *Publisher) noteAgain(o *Offer) {
	if o.Written == 0 || !p.memory.has(o.Event.ID) {
		return
	}
	l, _ := p.line(o.Event.AggregateID)
	if o.Written <= l.next {
		return
	}
	if l.next > 0 {
		p.late(o, o.Written-l.next)
	}
	l.next = o.Written
	if lane, ok := p.lanes[o.Event.AggregateID]; ok {
		lane.line = l
	} else {
		p.memory.keep(o.Event.AggregateID, l)
	}
}

// late counts an event that is published behind a later one of its aggregate; o is
// either of them.
func (p *Publisher) late(o *Offer, by int64) {
	p.Metrics.Late.Inc()
	p.log.Warn("event published behind a later one of its aggregate", "event_id", o.Event.IDString(), "aggregate_id", o.Event.AggregateString(),
		"by", time.Duration(by)*time.Microsecond, trace.Attrs(o.Event.Headers))
}
