package publish

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// sendLocked passes the item to the producer and reports whether the breaker admitted it.
// It is called locked, which keeps the order of the lane. It neither blocks nor runs the
// callback before it returns.
func (p *Publisher) sendLocked(l *lane, it *item, v *view, now time.Time) bool {
	if it.call = p.calls.Admit(now); it.call == nil {
		l.home.refused[l] = struct{}{}
		return false
	}
	if l.outstanding == 0 {
		l.flight.Begin(it.topic)
		l.home.sending[l] = struct{}{}
	}
	l.sent(it, v.part, v.large, now)
	p.partitions.begin(it)
	r := record(it, p.cfg, p.calls.State())
	r.Headers = p.epochs.add(append(r.Headers, p.tableHeader), it)
	p.producer.Send(&l.flight, r, func(r *kgo.Record, err error) { p.done(l, it, r, err) })
	return true
}

// lockFor locks what the result of a record of the lane needs: the lane's stripe if the
// record was acknowledged or rejected, and nothing before it failed, otherwise all stripes.
func (p *Publisher) lockFor(l *lane, r *kgo.Record, err error) sync.Locker {
	if l.replay == nil && (err == nil || producer.Rejected(r)) {
		l.home.Lock()
		if l.err == nil && l.state != laneSuspect {
			return l.home
		}
		l.home.Unlock()
	}
	p.mu.Lock()
	return &p.mu.stripes
}

// done processes the producer's result.
func (p *Publisher) done(l *lane, it *item, r *kgo.Record, err error) {
	now := time.Now() // once, because a read of the clock is a hundredth of the cost of an event
	lock := p.lockFor(l, r, err)
	if err == nil {
		p.calls.Acknowledged(now)
	}
	resumed := p.partitions.end(it, err == nil, now)
	p.resumeAllLocked(&resumed)
	if resumed.probe != nil {
		defer p.pumpAll(resumed.probe)
	}
	outcome := calls.ErrUncounted
	rejected := err != nil && producer.Rejected(r)
	if !rejected {
		it.attempts = max(it.attempts, p.madeAttempts(it, err))
		outcome = p.outcome(l, err)
	}
	p.calls.Answered(it.call, outcome)
	it.call = nil
	switch {
	case rejected:
		l.rejected(it)
	case err != nil:
		p.backLocked(l, it, err)
	default:
		if l.acknowledged() {
			p.endProbeLocked(l)
			p.releaseLocked(l)
		}
		if l.replay != nil {
			p.replayedLocked(l, it, r)
		} else {
			p.settleLocked(l, it, true)
		}
	}
	if l.outstanding == 0 {
		l.flight.End()
		delete(l.home.sending, l)
	}
	p.nextUnlock(l, lock)
	if err != nil {
		return
	}

	p.recordClock.published(r.Timestamp, it.event.CreatedAt)
	mayGive, used := p.gateRoom.spend()
	if used {
		p.log.Error("events of all partitions wait until the unread ones can be read back: a start could not remember more published events",
			"dedup_ids", p.cfg.Share.Events())
	}
	if l.replay == nil && mayGive {
		p.budget.Give(it.bytes)
	}
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

// outcome returns the result that the breaker counts for a result of the producer.
func (p *Publisher) outcome(l *lane, err error) error {
	switch {
	case err == nil:
		return nil
	case l.flight.Recalled(), errors.Is(err, producer.ErrRecalled):
		return calls.ErrUncounted
	case failure.Classify(err) == failure.Transient:
		return err
	case failure.Classify(err) == failure.Stopped:
		return calls.ErrUncounted
	default:
		return calls.ErrRefused
	}
}

// madeAttempts returns the attempts that the producer made for an item that it returned.
func (p *Publisher) madeAttempts(it *item, err error) int {
	made := p.calls.Attempt(it.call)
	if errors.Is(err, producer.ErrRecalled) {
		made-- // the last one was canceled
	}
	return made
}

// backLocked queues an item that was not written.
func (p *Publisher) backLocked(l *lane, it *item, err error) {
	if class := failure.Classify(err); class != failure.Stopped {
		p.Metrics.Failures.WithLabelValues(class.String()).Inc()
	}
	if producer.StateChanged(err) {
		p.producer.Catalog.Forget(it.topic)
	}
	l.returned(it, err)
}

// nextUnlock continues the lane after a result, removes it if it has no items left, and
// unlocks the lock that lockFor returned.
func (p *Publisher) nextUnlock(l *lane, lock sync.Locker) {
	more := p.pump(l, lock != l.home)
	l.home.rest(l)
	lock.Unlock()
	if more {
		p.pumpAll(l)
	}
}

// makeTopicLocked creates the topic and then restarts the lanes that wait for it.
func (p *Publisher) makeTopicLocked(topic string, l *lane) {
	key := Partition{topic, -1}
	if !p.partitions.create(key, l) {
		return
	}
	p.calls.Wake() // the creation may take longer than other lanes may wait
	p.wg.Go(func() {
		err := p.EnsureTopic(p.ctx, topic)
		p.mu.Lock()
		defer p.mu.Unlock()
		resumed := p.partitions.created(key)
		if resumed.wasGated {
			p.fatal(ErrPartitionResumed)
		}
		for l := range resumed.lanes {
			now := time.Now()
			v := p.viewLocked(l, now)
			switch s := l.decide(&v, now); {
			case err == nil, s.do != actMakeTopic || l.firstQueued().topic != topic: // it does not wait for this topic now
			case failure.Classify(err) == failure.Permanent && l.outstanding == 0:
				l.fail(err)
			default: // records before it decide: it asks again when they are back
				continue
			}
			p.pumpLocked(l)
		}
	})
}

// endReplayLocked ends a replay lane.
func (p *Publisher) endReplayLocked(l *lane, end replayEnd) {
	if _, ok := p.mu.replaying[l]; !ok {
		return
	}
	delete(p.mu.replaying, l)
	l.state.on(laneOver) // lists that still contain the lane send nothing of it
	l.items[0].state = acked
	end.attempts, end.captured = l.items[0].attempts, l.items[0].captured
	l.replay.end(end)
	p.endProbeLocked(l)
}

// replayedLocked ends an acknowledged replay. The dedup index contains the event if an
// operator settled its dead letter during the replay.
func (p *Publisher) replayedLocked(l *lane, it *item, r *kgo.Record) {
	p.ids.forget(it.event.ID.UUID())
	p.ids.add(it, true)
	p.endReplayLocked(l, replayEnd{topic: r.Topic, partition: r.Partition, offset: r.Offset})
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
