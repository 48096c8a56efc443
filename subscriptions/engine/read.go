package engine

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
)

// read reads records into the queues until ctx ends.
func (g *group) read(ctx context.Context) {
	for late := false; ctx.Err() == nil; {
		poll, cancel := context.WithCancel(ctx)
		if late {
			time.AfterFunc(lateInterval, cancel)
		}
		g.mu.Lock()
		if g.mu.poll = cancel; g.mu.poked {
			g.mu.poked = false
			cancel()
		}
		g.mu.Unlock()
		fetches := g.client.PollRecords(poll, pollRecords)
		cancel()
		gone := make(map[string]struct{})
		fetches.EachError(func(topic string, number int32, err error) {
			var loss *kgo.ErrDataLoss
			switch {
			case errors.Is(err, kerr.UnknownTopicID):
				gone[topic] = struct{}{}
			case errors.As(err, &loss):
				g.log.Error("the broker lost records", "topic", topic, "partition", number, "err", err)
				g.recordFailure(err)
				g.continueAt(topicPartition{topic, number}, loss.ResetTo)
			case poll.Err() == nil && !errors.Is(err, kgo.ErrClientClosed):
				g.log.Warn("failed to read a topic; retrying", "topic", topic, "partition", number, "err", err)
				g.recordFailure(err)
			}
		})
		for i := range fetches {
			for _, t := range fetches[i].Topics { // EachTopic may lose the topic id
				t.EachPartition(func(f kgo.FetchPartition) {
					g.observe(topicPartition{t.Topic, f.Partition}, &f)
					if len(f.Records) > 0 {
						g.take(topicPartition{t.Topic, f.Partition}, t.TopicID, f.LogStartOffset, f.Records)
					}
				})
			}
		}
		late = g.flow() // while the group cannot rebalance
		g.client.AllowRebalance()
		for topic := range gone {
			g.anew(topic)
		}
	}
}

// cachedSchemas is a context that has ended: nothing waits for the schema registry.
var cachedSchemas = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// observe keeps the end of a partition as of a fetch, or that it failed.
func (g *group) observe(tp topicPartition, f *kgo.FetchPartition) {
	g.mu.Lock()
	p := g.mu.partitions[tp]
	g.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.end = max(p.mu.end, f.LastStableOffset)
	p.mu.watch.interrupted = p.mu.watch.interrupted || f.Err != nil
}

// take adds records to the queue of their partition, or holds them. topicID is that of the
// topic which the client reads; zero if the fetch was one by name. first is the first offset of
// the log: records between the next one and first were deleted before they were read.
func (g *group) take(tp topicPartition, topicID [16]byte, first int64, records []*kgo.Record) {
	g.mu.Lock()
	p := g.mu.partitions[tp]
	g.mu.Unlock()
	if p == nil {
		return // it was reassigned
	}
	p.mu.Lock()
	holds, other := len(p.mu.held) > 0, p.mu.q != nil && topicID != [16]byte{} && topicID != p.topicID
	if p.mu.q != nil && !p.mu.closed && !holds && !p.mu.reset {
		if c := p.mu.q.Counts(); c.Next < min(first, records[0].Offset) {
			to := min(first, records[0].Offset)
			p.mu.skip = &subscriptions.Skip{Generation: c.Origin.Generation, From: c.Next, To: to, Count: p.mu.q.CountUnsettled(c.Next, to), Reason: subscriptions.SkipDeleted}
			holds = true
		}
	}
	p.mu.Unlock()
	if other {
		g.reload(p) // the broker that it asked for the topic id was late
		return
	}
	selected := make([]queue.Record, 0, len(records))
	for i := 0; i < len(records) && !holds; i++ {
		ok, err := g.selects(cachedSchemas, records[i]) // other partitions do not wait for the registry
		if holds = errors.Is(err, registry.ErrUnavailable); !holds {
			selected = append(selected, newSelected(records[i], ok, err))
		}
	}
	n := len(selected)
	if p.add(records[:n], selected) && n < len(records) {
		p.hold(records[n:])
	}
}

// newSelected returns a record for the queue; without a Record if it is not selected.
func newSelected(rec *kgo.Record, ok bool, undecidable error) (out queue.Record) {
	if ok {
		out = newQueueRecord(rec)
		out.Undecidable = undecidable
	}
	return out
}

// add adds records to the queue, unless they were read before its position was moved.
func (p *partition) add(records []*kgo.Record, selected []queue.Record) (added bool) {
	lost, replaces := false, false
	p.withQueue(func(q *queue.Queue) {
		if p.mu.reset {
			return // they were read before the position was moved
		}
		// The client goes back by itself only if the position was past the end of the log,
		// and its leader epoch unknown.
		if lost = len(records) > 0 && records[0].Offset < q.Counts().Next; lost {
			return
		}
		for i, rec := range records {
			if replaces = q.Replaces(rec); replaces {
				records = records[i:]
				return
			}
			if selected[i].Record != nil {
				q.Add(selected[i])
			} else {
				q.Skip(rec.Offset, rec.LeaderEpoch)
			}
		}
		added = true
	})
	if replaces {
		p.g.log.Error("a stored or leased message is not the record of its offset: the topic was restored from a copy of before it", "topic", p.topic, "partition", p.number, "offset", records[0].Offset)
		p.g.continueAt(p.topicPartition, records[0].Offset)
	}
	if lost {
		p.g.log.Error("the position is past the end of the log: the broker lost records, or another program set it; reading again from the first record",
			"topic", p.topic, "partition", p.number, "offset", records[0].Offset)
		p.g.continueAt(p.topicPartition, records[0].Offset)
	}
	return added
}

// lateInterval is the time after which flow is called again for late positions.
const lateInterval = 50 * time.Millisecond

// flow pauses the partitions whose queues are full or not loaded, resumes the others, and
// moves the client to the position of reloaded ones. Called while the group cannot
// rebalance: otherwise it could move the next assignment of a partition.
//
// The client ignores positions of partitions of which starts has not returned. They are
// late, and flow must be called again soon.
func (g *group) flow() (late bool) {
	all := g.ownedPartitions()
	total := 0
	for _, p := range all {
		p.mu.Lock()
		if p.mu.q != nil {
			total += p.mu.q.Counts().Bytes
		}
		for _, rec := range p.mu.held {
			total += len(rec.Key) + len(rec.Value)
		}
		p.mu.Unlock()
	}
	pause, resume := make(map[string][]int32), make(map[string][]int32)
	move := make(map[string]map[int32]kgo.EpochOffset)
	reading := g.client.CommittedOffsets() // of the partitions that the client has begun to read
	for _, p := range all {
		p.mu.Lock()
		limit := maxBytes
		if p.mu.stopped {
			limit = maxBytes / 4 * 3
		}
		stop := p.mu.q == nil || p.mu.closed || len(p.mu.held) > 0 || p.mu.q.Full(p.mu.stopped) || total > limit
		if _, ok := reading[p.topic][p.number]; p.mu.reset && !ok {
			late = true
		} else if p.mu.reset {
			if move[p.topic] == nil {
				move[p.topic] = make(map[int32]kgo.EpochOffset)
			}
			move[p.topic][p.number] = kgo.EpochOffset{Epoch: -1, Offset: p.mu.resetTo}
			p.mu.reset = false
		}
		p.mu.stopped = stop
		p.mu.watch.interrupted = p.mu.watch.interrupted || stop
		p.mu.Unlock()
		if stop {
			pause[p.topic] = append(pause[p.topic], p.number)
		} else {
			resume[p.topic] = append(resume[p.topic], p.number)
		}
	}
	g.client.SetOffsets(move)
	g.client.PauseFetchPartitions(pause)
	g.client.ResumeFetchPartitions(resume)
	return late
}

// continueAt continues with the records that are left.
func (g *group) continueAt(tp topicPartition, to int64) {
	g.mu.Lock()
	p := g.mu.partitions[tp]
	g.mu.Unlock()
	if p != nil {
		g.reloadFrom(p, func(c *committed) { c.truncated, c.end = true, to })
	}
}

// anew resets a deleted topic. The client would wait for the old one indefinitely; a
// recreated topic is read like a new one.
func (g *group) anew(topic string) {
	g.log.Warn("a topic was deleted; if it is created again, it is read from its start", "topic", topic)
	g.mu.Lock()
	var all []*partition
	for tp, p := range g.mu.partitions {
		if tp.topic == topic {
			all = append(all, p)
		}
	}
	g.mu.Unlock()
	g.forget(all) // before the client can get partitions of the new topic
	g.client.PurgeTopicsFromConsuming(topic)
	if _, patterns := g.resource.Load().TopicRegexps(); !patterns { // which find it by themselves
		g.client.AddConsumeTopics(topic)
	}
}
