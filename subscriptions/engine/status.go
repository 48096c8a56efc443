package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// partitions returns the partitions that have an owner here or a committed offset.
func (g *group) partitions(ctx context.Context) ([]subscriptions.PartitionStatus, error) {
	if g.adm == nil {
		return nil, nil
	}
	offsets, err := g.adm.FetchOffsets(ctx, g.incarnation)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nobody has joined it yet
		return nil, fmt.Errorf("read the committed offsets: %w", err)
	}
	all := make(map[topicPartition]*subscriptions.PartitionStatus)
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			all[topicPartition{o.Topic, o.Partition}] = &subscriptions.PartitionStatus{Topic: o.Topic, Partition: o.Partition, Committed: o.At}
		}
	})
	read := make(map[topicPartition]int64)
	for _, p := range g.ownedPartitions() {
		s := all[p.topicPartition]
		if s == nil {
			s = &subscriptions.PartitionStatus{Topic: p.topic, Partition: p.number}
			all[p.topicPartition] = s
		}
		p.mu.Lock()
		if q := p.mu.q; q != nil && !p.mu.closed {
			c := q.Counts()
			read[p.topicPartition] = p.readLocked()
			s.Owner, s.Epoch, s.Committed, s.Waiting, s.Leased, s.Deferred, s.Oldest = g.e.cfg.Instance, p.mu.epoch, c.Offset, c.Waiting, c.Leased, c.Deferred, q.Oldest().UTC()
			s.CommittedAt = p.mu.committed.UTC()
		}
		p.mu.Unlock()
	}
	topics := make(map[string]bool)
	for tp := range all {
		topics[tp.topic] = true
	}
	var names []string
	for t := range topics {
		names = append(names, t)
	}
	if len(names) == 0 {
		return nil, nil
	}
	ends, err := g.adm.ListCommittedOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("list the end offsets: %w", err)
	}
	out := make([]subscriptions.PartitionStatus, 0, len(all))
	for tp, s := range all {
		if end, ok := ends.Lookup(tp.topic, tp.number); ok && end.Err == nil {
			s.End, s.Lag = end.Offset, max(0, end.Offset-s.Committed)
			if s.Owner != "" {
				s.Lag = lag(queue.Counts{Waiting: s.Waiting, Leased: s.Leased, Deferred: s.Deferred}, read[tp], end.Offset)
			}
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b subscriptions.PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}

// skipEmptied passes over the records of a partition of which the topic has deleted all that
// were not read: no later record shows that. The client may still have records that it read
// before, so this is so only if nothing was added since the last call.
func (g *group) skipEmptied(ctx context.Context, p *partition, start, end int64) {
	p.mu.Lock()
	idle := p.mu.q != nil && !p.mu.closed && !p.mu.stopped && len(p.mu.held) == 0 && !p.mu.reset
	if !idle || start != end || p.mu.q.Counts().Next >= start {
		p.mu.emptied = 0
		p.mu.Unlock()
		return
	}
	c := p.mu.q.Counts()
	again, count := p.mu.emptied == c.Next+1, p.mu.q.CountUnsettled(c.Next, start)
	p.mu.emptied = c.Next + 1
	p.mu.Unlock()
	if !again {
		return
	}
	k := subscriptions.Skip{Generation: c.Origin.Generation, From: c.Next, To: start, Count: count, Reason: subscriptions.SkipDeleted}
	if err := g.skip(ctx, p, k); err != nil {
		g.recordFailure(err)
		return
	}
	p.withQueue(func(q *queue.Queue) {
		if q.Counts().Next == c.Next {
			q.Skip(start-1, -1)
		}
	})
}

// readEnds reads the ends of the owned partitions, for the lag.
func (g *group) readEnds(ctx context.Context) {
	all := g.ownedPartitions()
	topics := make(map[string]bool)
	var names []string
	for _, p := range all {
		if !topics[p.topic] {
			topics[p.topic] = true
			names = append(names, p.topic)
		}
	}
	if len(names) == 0 {
		return
	}
	ends, err := g.adm.ListCommittedOffsets(ctx, names...)
	starts, err2 := g.adm.ListStartOffsets(ctx, names...)
	if err != nil || err2 != nil {
		return // the lag is that of the last time
	}
	for _, p := range all {
		end, ok := ends.Lookup(p.topic, p.number)
		start, ok2 := starts.Lookup(p.topic, p.number)
		if ok && ok2 && end.Err == nil && start.Err == nil {
			p.mu.Lock()
			p.endLocked(end.Offset)
			p.mu.Unlock()
			g.skipEmptied(ctx, p, start.Offset, end.Offset)
		}
	}
}

// Progress returns the state of a message: of a partition of this instance from memory,
// otherwise, without Owner, from the position and the stored message. That does not contain
// leases.
func (e *Engine) Progress(ctx context.Context, name string, at subscriptions.Place) (subscriptions.Progress, error) {
	g, _, err := e.group(ctx, name)
	if err != nil {
		return subscriptions.Progress{}, err
	}
	return g.progress(ctx, at)
}

// known is the state of an offset and the origin of the position of its partition.
type known struct {
	queue.Progress
	origin position.Origin
}

func (g *group) progress(ctx context.Context, at subscriptions.Place) (subscriptions.Progress, error) {
	out := subscriptions.Progress{Subscription: g.name}
	var k known
	if p := g.partition(topicPartition{at.Topic, at.Partition}); p != nil {
		p.apply(func(q *queue.Queue) {
			k, out.Owner = known{q.Progress(at.Offset), q.Counts().Origin}, g.e.cfg.Instance
			if r := q.Progress(store.ReplayOffset(at.Offset)); k.Kind == queue.Over && r.Kind == queue.InPhase && g.isReplay(at, k.origin, r.DeadLetter) {
				k.Progress = r
			}
		})
	}
	if out.Owner == "" {
		var err error
		if k, err = g.readProgress(ctx, at); err != nil {
			return out, fmt.Errorf("the state of message %s/%d@%d: %w", at.Topic, at.Partition, at.Offset, unavailable(err))
		}
	}
	out.Attempts, out.Error = k.Attempts, k.Error
	if k.DeadLetter != (gocql.UUID{}) {
		out.DeadLetter = k.DeadLetter.String()
	}
	switch k.Kind {
	case queue.InPhase:
		inPhase(&out, &k)
	case queue.Unread:
		g.unread(&out, at)
	case queue.Purged:
		out.State, out.Detail = subscriptions.ProgressSkipped, "purged"
		if !k.At.IsZero() {
			out.Detail += " at " + rfc3339(k.At)
		}
	case queue.Acknowledged:
		out.State, out.ProcessedAt = subscriptions.ProgressCompleted, k.At
	case queue.Over:
		if found, err := g.isDeadLetter(ctx, &out, at, k.origin); err != nil || found {
			return out, unavailable(err)
		}
		g.over(&out, at, k.At)
	}
	return out, nil
}

func inPhase(out *subscriptions.Progress, k *known) {
	switch k.Phase {
	case queue.Waiting:
		out.State = subscriptions.ProgressWaiting
	case queue.Deferred:
		out.State, out.NextAttempt = subscriptions.ProgressDelayed, k.At
	case queue.Dead:
		out.State, out.Detail = subscriptions.ProgressDeadLettered, "its dead letter is being written"
	case queue.Leased:
		out.State, out.LeaseUntil = subscriptions.ProgressProcessing, k.At
	case queue.Settled:
		out.State, out.Detail = subscriptions.ProgressProcessing, "its acknowledgement is not durable yet"
	}
}

// unread sets the state of a record that is neither settled nor stored nor in memory. Only
// without a position it may be one that the subscription does not begin with.
func (g *group) unread(out *subscriptions.Progress, at subscriptions.Place) {
	out.State = subscriptions.ProgressWaiting
	if out.Owner == "" && g.beforeStart(at) {
		out.State, out.Detail = subscriptions.ProgressSkipped, "written before the start of the subscription"
	}
}

// beforeStart reports whether a partition without a seek begins after a record, by the
// record's time.
func (g *group) beforeStart(at subscriptions.Place) bool {
	r := g.resource.Load()
	start, err := r.StartTime(r.CreatedAt)
	_, sought := r.FindSeek(at.Topic, at.Partition)
	return err == nil && !sought && at.At.Before(start)
}

// over sets the state of a message that is not delivered again and of whose end nothing
// else is known. It is not called completed if a seek or a purge may have skipped it.
func (g *group) over(out *subscriptions.Progress, at subscriptions.Place, before time.Time) {
	r := g.resource.Load()
	seek, sought := r.FindSeek(at.Topic, at.Partition)
	switch {
	case g.beforeStart(at):
		out.State, out.Detail = subscriptions.ProgressSkipped, "written before the start of the subscription"
		return
	case sought && skips(&seek, at):
		out.State, out.Detail = subscriptions.ProgressSettled, "acknowledged, or skipped by the seek of "+rfc3339(seek.At)
	case at.At.Before(r.Purge.Before):
		out.State, out.Detail = subscriptions.ProgressSettled, "acknowledged, or removed by the purge of "+rfc3339(r.Purge.At)
	default:
		out.State = subscriptions.ProgressCompleted
	}
	out.ProcessedBefore = before.UTC()
}

// skips reports whether a seek may have moved the position past a record.
func skips(seek *store.Seek, at subscriptions.Place) bool {
	switch seek.To {
	case "offset":
		return at.Offset < seek.Offset
	case subscriptions.StartEarliest:
		return false
	case subscriptions.StartLatest:
		return at.At.Before(seek.At)
	}
	to, err := time.Parse(time.RFC3339, seek.To)
	return err != nil || at.At.Before(to)
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// deadLetterID returns the id of the dead letter of a message.
func (g *group) deadLetterID(at subscriptions.Place, of position.Origin) gocql.UUID {
	p := deadletter.Place{Incarnation: g.incarnation, Topic: at.Topic, TopicID: of.TopicID, Partition: at.Partition, Generation: of.Generation, Offset: at.Offset}
	return p.ID(0, 0)
}

// isReplay reports whether a dead letter is that of a message.
func (g *group) isReplay(at subscriptions.Place, of position.Origin, deadLetter gocql.UUID) bool {
	return deadLetter == g.deadLetterID(at, of)
}

// isDeadLetter sets the state of a message that has become a dead letter; false if it is
// none.
func (g *group) isDeadLetter(ctx context.Context, out *subscriptions.Progress, at subscriptions.Place, of position.Origin) (bool, error) {
	l, err := g.e.cfg.DeadLetters.Read(ctx, g.deadLetterID(at, of))
	if errors.Is(err, dlq.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	out.DeadLetter, out.State, out.Attempts, out.Error = l.EventID.String(), subscriptions.ProgressDeadLettered, l.Attempts, l.ErrorText
	switch {
	case l.Outcome.Kind == dlq.OutcomeReplayed:
		out.State, out.ProcessedAt, out.Detail = subscriptions.ProgressCompleted, l.ResolvedAt.UTC(), "acknowledged after a replay of its dead letter"
	case !open(l.Status):
		out.Detail = "the dead letter is " + string(l.Status)
	}
	return true, nil
}

// readProgress returns the state of an offset by the database and Kafka. The position is read
// before the row: a message is settled once its row exists, and the row is removed last.
func (g *group) readProgress(ctx context.Context, at subscriptions.Place) (k known, err error) {
	if g.adm == nil {
		return k, errors.New("this process does not run the subscription")
	}
	offsets, err := g.adm.FetchOffsetsForTopics(ctx, g.incarnation, at.Topic)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return k, fmt.Errorf("read the committed offset: %w", err)
	}
	offset, settled := int64(-1), position.Set{}
	if o, ok := offsets.Lookup(at.Topic, at.Partition); ok && o.Err == nil {
		offset = o.At
		settled, k.origin, _ = position.Decode(o.At, o.Metadata) // empty if another program has set the offset
	}
	now := time.Now()
	id := store.Partition{Subscription: g.incarnation, Topic: at.Topic, Number: at.Partition}
	m, err := g.e.cfg.Store.Message(ctx, id, at.Offset)
	over := at.Offset < offset || settled.Has(at.Offset)
	if over && errors.Is(err, store.ErrNoRecord) {
		if m, err = g.e.cfg.Store.Message(ctx, id, store.ReplayOffset(at.Offset)); err == nil && !g.isReplay(at, k.origin, m.DeadLetter) {
			err = store.ErrNoRecord // of a former generation
		}
	}
	switch {
	case errors.Is(err, store.ErrNoRecord) && over:
		k.Kind, k.At = queue.Over, now
	case errors.Is(err, store.ErrNoRecord):
		k.Kind = queue.Unread
	case err != nil:
		return k, err
	default:
		k.Attempts, k.DeadLetter = m.Attempts, m.DeadLetter
		k.Error, _ = queue.CutDetails(m.Error)
		switch m.State {
		case store.StateBehind:
		case store.StateDeadLettering, store.StateRejected:
			k.Phase = queue.Dead
		default:
			k.Phase, k.At = queue.Deferred, m.NextAt
		}
	}
	return k, nil
}
