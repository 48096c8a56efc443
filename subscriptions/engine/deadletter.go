package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
)

// Error classes of the dead letters of subscriptions.
const (
	// ClassMaxReceive: the message was delivered as often as is allowed.
	ClassMaxReceive = "max_receive"
	// ClassRejected: the consumer rejected it, the filter could not be evaluated, or
	// the transform failed.
	ClassRejected = "rejected"
	// ClassRecordGone: the message was stored when its topic was deleted, or the broker lost
	// its record.
	ClassRecordGone = "record_gone"
)

// deadLetter writes the dead letter of a message, or fails the one that it is a replay of.
// Repeating it after a crash changes nothing.
func (g *group) deadLetter(ctx context.Context, p *partition, d *queue.DeadLetter) error {
	class := ClassMaxReceive
	if d.Rejected {
		class = ClassRejected
	}
	if d.DeadLetter != (gocql.UUID{}) {
		reason, details := queue.CutDetails(d.Error)
		err := g.replayer.FailReplay(ctx, d.DeadLetter, dlq.Failure{Class: class, Text: reason, Chain: deadletter.Lines(details), Attempts: d.Attempts})
		if err == nil {
			g.metrics.deadLettered.Inc()
		}
		return err
	}
	m := &deadletter.Message{Record: d.Record, Origin: p.origin(), Attempts: d.Attempts, FirstAt: d.FirstAt, Class: class}
	m.Error, m.Details = queue.CutDetails(d.Error)
	return g.write(ctx, m)
}

// write writes the dead letter of a message, whose common fields it sets.
func (g *group) write(ctx context.Context, m *deadletter.Message) error {
	r := g.resource.Load()
	m.Table, m.Name, m.Incarnation, m.At, m.Host = r.DeadLetterTable(), r.DeadLetter.Name, g.incarnation, time.Now(), g.e.cfg.Instance
	for {
		_, err := g.e.cfg.DeadLetters.Write(ctx, deadletter.New(m))
		switch {
		case err == nil:
			g.metrics.deadLettered.Inc()
			return nil
		case !errors.Is(err, dlq.ErrOtherRecord):
			return fmt.Errorf("write a dead letter: %w", err)
		}
		m.Collisions++
	}
}

// open reports whether a dead letter waits for a decision or a replay.
func open(s dlq.Status) bool { return s != dlq.Resolved && s != dlq.Archived }

// blocking is an open dead letter of a subscription with strict order: its key and its place.
// The zero value is one of a deleted subscription of the name.
type blocking struct {
	topicPartition
	queue.Blocked
	topicID    [16]byte
	generation int64
}

// blocking returns the open dead letters. It reads each once.
func (g *group) blocking(ctx context.Context) (map[gocql.UUID]blocking, error) {
	g.mu.Lock()
	known := g.mu.blocking
	g.mu.Unlock()
	out := make(map[gocql.UUID]blocking)
	var ids []gocql.UUID
	err := g.e.cfg.DeadLetters.Chains(ctx, g.resource.Load().DeadLetterTable(), func(c dlq.ChainEntry) error {
		if !open(c.Status) || c.Unblocked {
			return nil
		}
		if b, ok := known[c.EventID]; ok {
			out[c.EventID] = b
		} else {
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
		at, err := deadletter.ReadPlace(&l)
		if err == nil && at.Incarnation != g.incarnation {
			out[id] = blocking{}
			continue
		}
		if rec, err := deadletter.Record(&l); err == nil {
			out[id] = blocking{topicPartition{rec.Topic, rec.Partition}, queue.Blocked{Key: newQueueRecord(rec).Key, Offset: rec.Offset, At: rec.Timestamp}, at.TopicID, at.Generation}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.blocking = out
	return out, nil
}

// readBlocked returns the open dead letters for a partition: the key of each is blocked in all
// partitions. Only dead letters of its generation are messages that the partition has.
func (g *group) readBlocked(ctx context.Context, p *partition, of position.Origin) (out []queue.Blocked, err error) {
	all, err := g.blocking(ctx)
	for _, b := range all {
		if b.topicPartition == (topicPartition{}) {
			continue // of a deleted subscription
		}
		if b.topicPartition != p.topicPartition || b.topicID != of.TopicID || b.generation != of.Generation {
			b.Offset = -1
		}
		out = append(out, b.Blocked)
	}
	return out, err
}

// unblock frees the keys whose dead letters are closed or released. Only subscriptions
// with strict order have such keys.
func (g *group) unblock(ctx context.Context) {
	waiting := g.keys.BlockedKeys()
	if len(waiting) == 0 {
		return
	}
	all, err := g.blocking(ctx)
	if err != nil {
		if ctx.Err() == nil {
			g.recordFailure(err)
		}
		return
	}
	blocked := make(map[string]bool)
	for _, b := range all {
		blocked[b.Key] = true
	}
	for _, key := range waiting {
		if blocked[key] {
			continue
		}
		g.keys.Free(key)
		for _, p := range g.ownedPartitions() {
			p.withQueue(func(q *queue.Queue) { q.Turn(key) })
		}
	}
}
