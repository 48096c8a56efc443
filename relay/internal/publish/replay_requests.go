package publish

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// logFailureEvery is the interval of log messages about a repeated failure.
const logFailureEvery = time.Minute

// failureLog limits the log messages about a repeated failure to one per interval, so
// that they do not hide other messages in an outage.
type failureLog struct{ last time.Time }

// due reports whether the failure must be logged now.
func (c *failureLog) due(now time.Time) bool {
	if !c.last.IsZero() && now.Sub(c.last) < logFailureEvery {
		return false
	}
	c.last = now
	return true
}

// over ends the failure: the next one is logged immediately.
func (c *failureLog) over() { c.last = time.Time{} }

// requests reads and processes the operators' requests about dead letters. The table
// already contains the changes.
func (r *Replayer) requests(ctx context.Context) {
	store := r.p.cfg.DeadLetters
	found, err := store.Requests(ctx, r.p.cfg.tableName(), func(q *dlq.Request) bool { return r.Own.HasText(q.AggregateID) }) // the rest waits for the relays of its shards
	if err != nil {
		if ctx.Err() == nil && r.unread.due(time.Now()) {
			r.log.Warn("failed to read requests about dead letters, retrying", "err", err)
		}
		return
	}
	r.unread.over()
	for _, q := range found {
		r.Answer(&q)
		if err := store.Done(ctx, q); err != nil {
			if ctx.Err() == nil {
				r.log.Warn("failed to delete a request about a dead letter, retrying", "event_id", q.EventID, "err", err)
			}
			return
		}
	}
}

// Answer brings the state of a dead letter in line with the table after a request.
func (r *Replayer) Answer(q *dlq.Request) {
	e := &q.Entry
	r.log.Info("operator changed a dead letter", "action", q.Action, "actor", q.Actor,
		"event_id", q.EventID, "aggregate_id", e.AggregateID, "status", e.Status)
	r.p.ask(func(c *cell) {
		c.follow(e, q.Action, r.Own)
		if l, ok := c.lanes[rows.IDOf(e.AggregateID)]; ok {
			c.pump(l)
		}
		c.do(effect{do: effReplay})
	})
}
