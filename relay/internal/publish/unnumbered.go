package publish

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// Events of a table without numbers are identified by their ids alone. Their order is
// that of the log, by cdc$time. In their lines, next is the write time of the last one.

// judgeByTime returns the verdict for an event without a number that is not in the dedup
// index. It does not check for earlier events: the caller keeps the order.
func (p *Publisher) judgeByTime(o *Offer) Verdict {
	if o.By == ByTail && o.Written > 0 && o.Written <= p.dedup.Horizon() {
		return Left // it may be published and its id evicted; the sweep reader decides
	}
	return Taken
}

// noteTime records that the lane accepts an event without a number. Called locked.
func (p *Publisher) noteTime(l *lane, o *Offer) {
	if o.Written > 0 && o.Written < l.line.Next {
		p.late(o, l.line.Next-o.Written)
	}
	l.line.Next = max(l.line.Next, o.Written)
}

// noteAgain records the write time of an event that was already published, by this
// process or an earlier one: after a start nothing else is known of its aggregate. An
// older event accepted since the start was late. Called locked.
func (p *Publisher) noteAgain(o *Offer) {
	if o.Written == 0 || !p.dedup.Has(o.Event.ID) {
		return
	}
	l, _ := p.line(o.Event.AggregateID)
	if o.Written <= l.Next {
		return
	}
	if l.Next > 0 {
		p.late(o, o.Written-l.Next)
	}
	l.Next = o.Written
	if lane, ok := p.lanes[o.Event.AggregateID]; ok {
		lane.line = l
	} else {
		p.dedup.Keep(o.Event.AggregateID, l)
	}
}

// late counts an event that is published after a later one of its aggregate; o is either
// of the two.
func (p *Publisher) late(o *Offer, by int64) {
	p.Metrics.Late.Inc()
	p.log.Warn("event published after a later one of its aggregate", "event_id", o.Event.IDString(), "aggregate_id", o.Event.AggregateString(),
		"by", time.Duration(by)*time.Microsecond, trace.Attrs(o.Event.Headers))
}
