package publish

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// sayAgain is how often the log says that something goes on failing.
const sayAgain = time.Minute

// complaint is something that is tried all the time and goes on failing: in an
// outage the log says it now and then, so that other lines are seen.
type complaint struct{ said time.Time }

// due says whether the log says it now.
func (c *complaint) due(now time.Time) bool {
	if !c.said.IsZero() && now.Sub(c.said) < sayAgain {
		return false
	}
	c.said = now
	return true
}

// over is called when it works again.
func (c *complaint) over() { c.said = time.Time{} }

// requests reads what operators did to dead letters and answers to it: the
// letters have changed in the table already.
func (r *replayer) requests(ctx context.Context) {
	store := r.p.letters.store
	found, err := store.Requests(ctx, r.p.letters.table, r.Own.HasText) // the rest waits for the relays of its shards
	if err != nil {
		if ctx.Err() == nil && r.unread.due(time.Now()) {
			r.log.Warn("cannot read the requests about dead letters; what operators did to them waits", "err", err)
		}
		return
	}
	r.unread.over()
	for _, q := range found {
		r.Answer(&q)
		if err := store.Done(ctx, q); err != nil {
			if ctx.Err() == nil {
				r.log.Warn("cannot take a request about a dead letter off the list; it is read again", "event_id", q.EventID, "err", err)
			}
			return
		}
	}
}

// Answer brings what the relay knows of a letter in line with the table.
func (r *replayer) Answer(q *dlq.Request) {
	p, e := r.p, &q.Entry
	p.mu.Lock()
	defer p.mu.Unlock()
	r.log.Info("an operator changed a dead letter", "action", q.Action, "actor", q.Actor,
		"event_id", q.EventID, "aggregate_id", e.AggregateID, "status", e.Status)
	r.follow(e, q.Action == dlq.ActionReplay || q.Action == dlq.ActionEdit)
	if l, ok := p.lanes[outbox.IDOf(e.AggregateID)]; ok {
		p.pump(l)
	}
	p.wake()
}
