package relay

import (
	"context"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// requests reads what operators did to dead letters and answers to it: the
// letters have changed in the table already.
func (r *replayer) requests(ctx context.Context) {
	store := r.p.letters.store
	found, err := store.Requests(ctx, r.p.letters.table)
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("cannot read the requests about dead letters", "err", err)
		}
		return
	}
	for _, q := range found {
		if !r.own.text(q.AggregateID) {
			continue // it waits for the relay of its shard
		}
		r.answer(&q)
		if err := store.Done(ctx, q); err != nil {
			if ctx.Err() == nil {
				r.log.Warn("cannot take a request about a dead letter off the list; it is read again", "event_id", q.EventID, "err", err)
			}
			return
		}
	}
}

// answer brings what the relay knows of a letter in line with the table.
func (r *replayer) answer(q *dlq.Request) {
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
