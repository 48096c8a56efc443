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
		p.metrics.late.Inc()
		p.log.Warn("event comes behind a later one of its aggregate", "event_id", o.event.IDString(), "aggregate_id", o.event.AggregateString(),
			"by", time.Duration(l.line.next-o.written)*time.Microsecond, trace.Attrs(o.event.Headers))
	}
	l.line.next = max(l.line.next, o.written)
}
