package publish

import (
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// send passes the item to the producer and reports whether the breaker admitted it.
func (c *cell) send(l *lane, it *item, v *view) bool {
	if it.call = c.calls.Admit(c.now); it.call == nil {
		c.refused[l], l.kept = struct{}{}, true
		return false
	}
	if l.outstanding == 0 {
		c.env.begin(l, it.topic)
		c.sending.add(l)
	}
	l.sent(it, v.part, v.large, c.now)
	c.partitions.begin(it)
	c.do(effect{do: effSend, item: it, breaker: c.calls.State()})
	return true
}

// send passes the record of an item to the client. It is executed in the order of the steps, which
// keeps the order of the lane.
func (p *Publisher) send(it *item, breaker BreakerState) {
	s := p.driver.slots.take()
	s.fill(it, p.cfg, breaker)
	s.headers = p.epochs.add(append(s.headers, p.tableHeader), it)
	s.Record.Headers, it.slot = s.headers, s
	p.producer.Send(&it.lane.flight, &s.Slot, it)
}

// Returned passes the producer's result to the cell. Until then nothing but its settlements and what the
// readers know of it changes in the item.
func (it *item) Returned(r *kgo.Record, err error) {
	p, now := it.lane.publisher, time.Now() // once, because a read of the clock is a hundredth of the cost of an event
	if err == nil {
		p.calls.Acknowledged(now)
		p.published(it, r, now)
	}
	p.driver.post(input{kind: inResult, item: it, slot: it.slot, record: r, rejected: err != nil && producer.Rejected(r), err: err, at: now})
}

// published records that an event is in its topic.
func (p *Publisher) published(it *item, r *kgo.Record, now time.Time) {
	p.recordClock.published(r.Timestamp, it.event.CreatedAt)
	p.Metrics.Published.WithLabelValues(it.topic).Inc()
	exemplar := p.spans.Exemplar(it.event.Headers)
	latency.Observe(p.Metrics.publishSeconds, now.Sub(it.sentAt), exemplar)
	if it.written > 0 {
		latency.Observe(p.Metrics.CommitSeconds, time.Duration(now.UnixMicro()-it.written)*time.Microsecond, exemplar)
	}
	p.spans.Published(&it.event, r.Topic, r.Partition, r.Offset, it.capture())
	if !p.log.Enabled(p.ctx, slog.LevelDebug) {
		return // avoid allocating the values of the message
	}
	p.log.Debug("event published", "event_id", it.event.ID, "aggregate_id", it.event.AggregateID, "topic", it.topic, "attempt", it.attempts, trace.Attrs(it.event.Headers))
}

// returned processes a record that the producer has returned.
func (c *cell) returned(in *input) {
	l, it, err := in.item.lane, in.item, in.err
	resumed := c.partitions.end(it, err == nil, in.at)
	c.resume(&resumed)
	outcome := calls.ErrUncounted
	if !in.rejected {
		made := c.calls.Attempt(it.call) // by the producer
		if errors.Is(err, producer.ErrRecalled) {
			made-- // the last one was canceled
		}
		it.attempts = max(it.attempts, made)
		outcome = c.outcome(l, err)
	}
	c.calls.Answered(it.call, outcome)
	it.call = nil
	switch {
	case in.rejected:
		l.rejected(it)
	case err != nil:
		c.back(l, it, err)
	default:
		if l.acknowledged() {
			c.endProbe(l)
			c.release(l)
		}
		if l.replay != nil {
			c.replayed(l, it, in.record)
		} else {
			c.settle(l, it, true)
		}
		c.giveRoom(l, it)
	}
	if l.outstanding == 0 {
		c.env.end(l)
		c.sending.remove(l)
	}
	if err == nil && l.replay == nil {
		it.clear()
		if it != &l.first { // that one stays with the lane
			c.items.give(it)
		}
	}
	c.pump(l)
	if resumed.probe != nil {
		c.pump(resumed.probe)
	}
}

// giveRoom gives the room of a published event to the next one, unless partitions are gated, and the
// next start could not remember it.
func (c *cell) giveRoom(l *lane, it *item) {
	reuse, used := c.gateRoom.spend()
	if used {
		c.report(func(to *Publisher) {
			to.log.Error("events of all partitions wait until the unread ones can be read back: a start could not remember more published events",
				"dedup_ids", to.cfg.Share.Events())
		})
	}
	if l.replay == nil && reuse {
		c.budget.Give(it.bytes)
	}
}

// outcome returns the result that the breaker counts for a result of the producer.
func (c *cell) outcome(l *lane, err error) error {
	switch {
	case err == nil:
		return nil
	case c.env.isRecalled(l), errors.Is(err, producer.ErrRecalled):
		return calls.ErrUncounted
	case failure.Classify(err) == failure.Transient:
		return err
	case failure.Classify(err) == failure.Stopped:
		return calls.ErrUncounted
	default:
		return calls.ErrRefused
	}
}

// back queues an item that was not written.
func (c *cell) back(l *lane, it *item, err error) {
	if class := failure.Classify(err); class != failure.Stopped {
		c.metrics.Failures.WithLabelValues(class.String()).Inc()
	}
	if producer.StateChanged(err) {
		c.env.Forget(it.topic)
	}
	l.returned(it, err)
}

// makeTopic creates the topic; topicMade then restarts the lanes that wait for it.
func (c *cell) makeTopic(topic string, l *lane) {
	if !c.partitions.create(Partition{topic, -1}, l, c.now) {
		return
	}
	c.calls.Wake() // the creation may take longer than other lanes may wait
	c.do(effect{do: effTopic, topic: topic})
}

// topicMade restarts the lanes that wait for a topic, which exists or is refused.
func (c *cell) topicMade(topic string, err error) {
	resumed := c.partitions.created(Partition{topic, -1})
	if resumed.wasGated {
		c.do(effect{do: effFail, err: ErrPartitionResumed})
	}
	for l := range resumed.lanes {
		v := c.view(l)
		switch s := l.decide(&v, c.now); {
		case err == nil, s.do != actMakeTopic || l.firstQueued().topic != topic: // it does not wait for this topic now
		case failure.Classify(err) == failure.Permanent && l.outstanding == 0:
			l.fail(err)
		default: // records before it decide: it asks again when they are back
			continue
		}
		c.pump(l)
	}
}

// endReplay ends a replay lane.
func (c *cell) endReplay(l *lane, end replayEnd) {
	if _, ok := c.replaying[l]; !ok {
		return
	}
	delete(c.replaying, l)
	l.state.on(laneOver) // lists that still contain the lane send nothing of it
	l.items[0].state = acked
	end.attempts, end.captured = l.items[0].attempts, l.items[0].captured
	c.do(effect{do: effEndReplay, lane: l, end: &end})
	c.endProbe(l)
}

// replayed ends an acknowledged replay. The dedup index contains the event if an
// operator settled its dead letter during the replay.
func (c *cell) replayed(l *lane, it *item, r *kgo.Record) {
	c.ids.index.Forget(it.event.ID.UUID())
	c.ids.add(it, true)
	c.endReplay(l, replayEnd{topic: r.Topic, partition: r.Partition, offset: r.Offset})
}

// replayEnd is the result of a replay.
type replayEnd struct {
	err       error  // nil: the event is in its topic
	found     bool   // it already was in its topic before the replay
	note      string // more about the outcome
	discarded bool   // the event of the row is another dead letter
	topic     string
	partition int32
	offset    int64
	attempts  int
	captured  time.Time // as in item
}
