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
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// ClassMoved is the error class of the dead letter of a replay that a seek, or the loss of
// records by the broker, has ended.
const ClassMoved = "moved"

// replays acts on the operators' requests while this instance owns partitions.
func (g *group) replays(ctx context.Context) {
	for retry.Wait(ctx, replayInterval) == nil {
		if len(g.owned()) == 0 {
			continue
		}
		if err := g.replayer.Poll(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn("failed to replay dead letters; retrying", "err", err)
			g.failed(err)
		}
	}
}

// Replayed implements deadletter.Messages.
func (g *group) Replayed(topic string, number int32, offset int64, deadLetter gocql.UUID) deadletter.State {
	p := g.partition(topicPartition{topic, number})
	state := deadletter.NotOwned
	if p == nil {
		return state
	}
	p.apply(func(q *queue.Queue) {
		free, stored := q.Replayed(offset, deadLetter)
		switch {
		case free:
			state = deadletter.Free
		case stored:
			state = deadletter.Stored
		default:
			state = deadletter.Busy
		}
	})
	return state
}

// Replay implements deadletter.Messages.
func (g *group) Replay(r *kgo.Record, deadLetter gocql.UUID) {
	if p := g.partition(topicPartition{r.Topic, r.Partition}); p != nil {
		p.locked(func(q *queue.Queue) {
			q.Replay(queue.Row{Offset: r.Offset, Key: recordOf(r).Key, Record: r, DeadLetter: deadLetter}, time.Now())
		})
	}
}

// partition returns the partition of a place, nil if this instance does not own it.
func (g *group) partition(tp topicPartition) *partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.partitions[tp]
}

// seek returns the version of the last seek of the partition.
func (p *partition) seek() (version int64) {
	p.apply(func(q *queue.Queue) { version = q.Counts().Seek })
	return version
}

// resolve resolves the dead letters of messages that have ended, before their rows are
// removed: in the other order a crash would leave the dead letters claimed. It returns the
// messages whose rows can be removed, and reports the others.
func (p *partition) resolve(offsets []int64) (remove []int64, failed error) {
	type replay struct {
		deadLetter gocql.UUID
		purged     bool
	}
	replays := make(map[int64]replay)
	p.apply(func(q *queue.Queue) {
		for _, o := range offsets {
			if id, purged := q.DeadLetterOf(o); id != (gocql.UUID{}) {
				replays[o] = replay{id, purged}
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
			err = p.g.replayer.Failed(p.ctx, r.deadLetter, dlq.Failure{Class: ClassMoved, Text: "the message was purged"})
		default:
			err = p.g.replayer.Acknowledged(p.ctx, p.topic, p.number, o, r.deadLetter)
		}
		if err == nil {
			remove = append(remove, o)
			continue
		}
		failed = errors.Join(failed, err)
		p.later(o, func(q *queue.Queue) { q.Removed(o, err) })
	}
	return remove, failed
}

// moved makes the dead letters manual whose replays are removed with their rows.
func (g *group) moved(ctx context.Context, rows []store.Stored) error {
	for i := range rows {
		id := rows[i].DeadLetter
		if id == (gocql.UUID{}) {
			continue
		}
		if err := g.replayer.Failed(ctx, id, dlq.Failure{Class: ClassMoved, Text: "the position of the subscription was moved"}); err != nil {
			return fmt.Errorf("remove stored messages: %w", err)
		}
	}
	return nil
}
