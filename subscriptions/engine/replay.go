package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// ClassMoved is the error class of the dead letter of a replay that a seek, or the loss of
// records by the broker, has ended.
const ClassMoved = "moved"

// replays acts on the operators' requests while this instance owns partitions.
func (g *group) replays(ctx context.Context) {
	for retry.Wait(ctx, replayInterval) == nil {
		if len(g.ownedPartitions()) == 0 {
			continue
		}
		if err := g.replayer.Poll(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn("failed to replay dead letters; retrying", "err", err)
			g.recordFailure(err)
		}
	}
}

// Replayed implements deadletter.Messages.
func (g *group) Replayed(r deadletter.Replay) deadletter.State {
	p := g.partition(topicPartition{r.Topic, r.Partition})
	state := deadletter.NotOwned
	if p == nil {
		return state
	}
	p.apply(func(q *queue.Queue) {
		switch q.FindReplayState(store.ReplayOffset(r.Offset), r.DeadLetter, r.Edited) {
		case queue.NoReplay:
			state = deadletter.Free
		case queue.AcceptedReplay:
			state = deadletter.Accepted
		case queue.StoredReplay:
			state = deadletter.Stored
		case queue.OtherReplay:
			state = deadletter.Busy
		}
	})
	return state
}

// Replay implements deadletter.Messages.
func (g *group) Replay(record *kgo.Record, r deadletter.Replay) {
	if p := g.partition(topicPartition{r.Topic, r.Partition}); p != nil {
		p.withQueue(func(q *queue.Queue) {
			q.Replay(queue.Row{Offset: store.ReplayOffset(r.Offset), Key: newQueueRecord(record).Key, Record: record, DeadLetter: r.DeadLetter, Edited: r.Edited}, time.Now())
		})
	}
}

// Cancel implements deadletter.Messages.
func (g *group) Cancel(r deadletter.Replay) {
	if p := g.partition(topicPartition{r.Topic, r.Partition}); p != nil {
		p.withQueue(func(q *queue.Queue) { q.Cancel(store.ReplayOffset(r.Offset), r.DeadLetter) })
	}
}

// Owns implements deadletter.Messages.
func (g *group) Owns(topic string, number int32) bool {
	return g.partition(topicPartition{topic, number}) != nil
}

// partition returns the partition of a place, nil if this instance does not own it.
func (g *group) partition(tp topicPartition) *partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.partitions[tp]
}

// origin returns that of the position of the partition.
func (p *partition) origin() (o position.Origin) {
	p.apply(func(q *queue.Queue) { o = q.Counts().Origin })
	return o
}

// resolve resolves the dead letters of messages that have ended, before their rows are
// removed: in the other order a crash would leave the dead letters claimed. It returns the
// messages whose rows can be removed, and reports the others.
func (p *partition) resolve(offsets []int64) (remove []int64, failed error) {
	type replay struct {
		deadletter.Replay
		purged bool
	}
	replays := make(map[int64]replay)
	p.apply(func(q *queue.Queue) {
		for _, o := range offsets {
			if id, edited, purged := q.FindReplay(o); id != (gocql.UUID{}) {
				replays[o] = replay{deadletter.Replay{Topic: p.topic, Partition: p.number, Offset: store.RecordOffset(o), DeadLetter: id, Edited: edited}, purged}
			}
		}
	})
	if len(replays) == 0 {
		return offsets, nil
	}
	for _, o := range offsets {
		var err error
		switch r, ok := replays[o]; {
		case !ok:
		case r.purged:
			err = p.g.replayer.FailReplay(p.ctx, r.DeadLetter, dlq.Failure{Class: ClassMoved, Text: "the message was purged"})
		default:
			err = p.g.replayer.ResolveReplay(p.ctx, r.Replay)
		}
		if err == nil {
			remove = append(remove, o)
			continue
		}
		failed = errors.Join(failed, err)
		p.later(o, func(q *queue.Queue) { q.ConfirmRemoval(o, err) })
	}
	return remove, failed
}

// suspendReplays makes the dead letters suspended whose replays are removed with their rows.
func (g *group) suspendReplays(ctx context.Context, rows []store.Stored, reason string) error {
	for i := range rows {
		id := rows[i].DeadLetter
		if id == (gocql.UUID{}) {
			continue
		}
		if err := g.replayer.FailReplay(ctx, id, dlq.Failure{Class: ClassMoved, Text: reason}); err != nil {
			return fmt.Errorf("remove stored messages: %w", err)
		}
	}
	return nil
}
