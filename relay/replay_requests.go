package relay

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
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
		if !r.answer(ctx, q.EventID) {
			return
		}
		if err := store.Done(ctx, q); err != nil {
			if ctx.Err() == nil {
				r.log.Warn("cannot take a request about a dead letter off the list; it is read again", "event_id", q.EventID, "err", err)
			}
			return
		}
	}
}

// answer brings what the relay knows of a letter in line with the table.
func (r *replayer) answer(ctx context.Context, id gocql.UUID) bool {
	letter, err := r.p.letters.store.Read(ctx, id)
	if err != nil {
		r.log.Warn("cannot read a dead letter that an operator changed", "event_id", id, "err", err)
		return ctx.Err() == nil && notFound(err)
	}
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	r.log.Info("an operator changed a dead letter", "event_id", id, "aggregate_id", letter.AggregateID, "status", letter.Status, "released", letter.Released)
	ref := p.letters.ref(id)
	switch {
	case ref == nil:
	case !letter.Status.Open():
		p.letters.remove(id)
	case letter.Released:
		p.letters.loosen(id, atOperator)
	case letter.Status == dlq.Pending:
		ref.at = atOnce
		if !letter.NextAttempt.IsZero() {
			ref.at = letter.NextAttempt.UnixMilli()
		}
	case letter.Status == dlq.Manual, letter.Status == dlq.Failed:
		ref.at = atOperator
	}
	if aggregate, err := aggregateOf(letter.AggregateID); err == nil {
		if l, ok := p.lanes[aggregate]; ok {
			p.pump(l)
		}
	}
	return true
}
