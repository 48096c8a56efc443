package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
)

// Error classes of the dead letters of subscriptions.
const (
	// ClassMaxReceive: the message was delivered as often as is allowed.
	ClassMaxReceive = "max_receive"
	// ClassRejected: the consumer rejected it, the filter could not be evaluated, or
	// the transform failed.
	ClassRejected = "rejected"
)

// deadLetter writes the dead letter of a message, or fails the one that it is a replay of.
// Repeating it after a crash changes nothing.
func (g *group) deadLetter(ctx context.Context, p *partition, d *queue.DeadLetter) error {
	class := ClassMaxReceive
	if d.Rejected {
		class = ClassRejected
	}
	if d.DeadLetter != (gocql.UUID{}) {
		err := g.replayer.Failed(ctx, d.DeadLetter, dlq.Failure{Class: class, Text: d.Error, Attempts: d.Attempts})
		if err == nil {
			g.metrics.deadLettered.Inc()
		}
		return err
	}
	r := g.resource.Load()
	_, err := g.e.cfg.DeadLetters.Write(ctx, deadletter.New(&deadletter.Message{
		Table: r.DeadLetterTable(), Name: r.DeadLetter.Name, Incarnation: g.incarnation, Record: d.Record, Seek: p.seek(), Attempts: d.Attempts,
		FirstAt: d.FirstAt, At: time.Now(), Class: class, Error: d.Error, Host: g.e.cfg.Instance,
	}))
	if err != nil {
		return fmt.Errorf("write a dead letter: %w", err)
	}
	g.metrics.deadLettered.Inc()
	return nil
}

// open reports whether a dead letter waits for a decision or a replay.
func open(s dlq.Status) bool { return s != dlq.Resolved && s != dlq.Archived }

// blocked returns the open dead letters of a partition.
func (g *group) blocked(ctx context.Context, p *partition) (out []queue.Blocked, err error) {
	var ids []gocql.UUID
	err = g.e.cfg.DeadLetters.Chains(ctx, g.resource.Load().DeadLetterTable(), func(c dlq.ChainEntry) error {
		if c.Topic == p.topic && open(c.Status) && !c.Released {
			ids = append(ids, c.EventID)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the dead letters: %w", err)
	}
	for _, id := range ids {
		l, err := g.e.cfg.DeadLetters.Read(ctx, id)
		if errors.Is(err, dlq.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read dead letter %s: %w", id, err)
		}
		if topic, number, offset, err := deadletter.Place(&l); err == nil && topic == p.topic && number == p.number {
			out = append(out, queue.Blocked{Key: l.AggregateID, Offset: offset})
		}
	}
	return out, nil
}

// unblock frees the keys whose dead letters are closed or released. Only subscriptions
// with strict order have such keys.
func (g *group) unblock(ctx context.Context) {
	waiting := make(map[*partition][]string)
	for _, p := range g.owned() {
		p.locked(func(q *queue.Queue) {
			if keys := q.Blocked(); len(keys) > 0 {
				waiting[p] = keys
			}
		})
	}
	if len(waiting) == 0 {
		return
	}
	blocked := make(map[string]bool)
	err := g.e.cfg.DeadLetters.Chains(ctx, g.resource.Load().DeadLetterTable(), func(c dlq.ChainEntry) error {
		if open(c.Status) && !c.Released {
			blocked[c.AggregateID] = true
		}
		return nil
	})
	if err != nil {
		if ctx.Err() == nil {
			g.failed(err)
		}
		return
	}
	for p, keys := range waiting {
		p.locked(func(q *queue.Queue) {
			for _, key := range keys {
				if !blocked[key] {
					q.Free(key)
				}
			}
		})
	}
}
