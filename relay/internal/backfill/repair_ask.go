package backfill

import (
	"context"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// answerPoll is how often a requester polls for answers.
const answerPoll = time.Second

// Publish requests events, waits for the answers until the deadline, and deletes its
// requests. A request without a final answer by then is returned as it is; the relay may
// still publish its event if the state is taken. If another requester has already
// requested an event, Publish waits for the answer to that request and does not delete
// it.
func (r *Repairs) Publish(ctx context.Context, events []Repair, deadline time.Time) (answers []Repair, err error) {
	all, err := r.All(ctx)
	if err != nil {
		return nil, err
	}
	others := make(map[gocql.UUID]Repair)
	for _, q := range all {
		if !q.State.Final() {
			others[q.EventID] = q
		}
	}
	open, mine := make(map[gocql.UUID]Repair, len(events)), make(map[gocql.UUID]bool)
	for _, q := range events {
		if other, ok := others[q.EventID]; ok {
			open[other.ID] = other
			continue
		}
		if err := r.Ask(ctx, &q); err != nil {
			return nil, err
		}
		open[q.ID], mine[q.ID] = q, true
	}
	for {
		if all, err = r.All(ctx); err != nil {
			return nil, err
		}
		late := !time.Now().Before(deadline)
		for _, a := range all {
			if _, ok := open[a.ID]; !ok || !a.State.Final() && !late {
				continue
			}
			delete(open, a.ID)
			if mine[a.ID] {
				if err := r.Forget(ctx, a.ID); err != nil {
					return nil, err
				}
			}
			answers = append(answers, a)
		}
		for id, q := range open {
			if late || !mine[id] && !has(all, id) { // the request expired or was deleted
				q.State, q.Detail = RepairUnknown, "the request was deleted or has expired"
				answers = append(answers, q)
				delete(open, id)
			}
		}
		if len(open) == 0 {
			return answers, nil
		}
		if retry.Wait(ctx, answerPoll) != nil {
			return nil, fmt.Errorf("interrupted while the relay repairs %d events, which it may still publish: %w", len(open), context.Cause(ctx))
		}
	}
}

func has(all []Repair, id gocql.UUID) bool {
	for i := range all {
		if all[i].ID == id {
			return true
		}
	}
	return false
}
