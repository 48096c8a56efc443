package publish

import (
	"bytes"
	"errors"
	"fmt"
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

// pumpLocked sends the events of the lane that may be sent now. Called with all stripes
// locked.
func (p *Publisher) pumpLocked(l *lane) { p.pump(l, true) }

// pumpAll is pumpLocked, without locks.
func (p *Publisher) pumpAll(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pumpLocked(l)
}

// pump sends the events of the lane that may be sent now. Called with the lane's stripe
// locked, or with all. If the next step changes what other stripes read, as a dead letter or
// a probe does, and only one is locked, it returns more: pumpAll continues.
func (p *Publisher) pump(l *lane, all bool) (more bool) {
	for !p.mu.closed && l.failed == nil && !l.paused && !l.writing {
		it := l.firstQueued()
		if it == nil || p.cfg.fenced() {
			return false
		}
		if p.isGated(it) {
			if l.replay != nil && all {
				p.endReplayLocked(l, replayEnd{err: fmt.Errorf("%w: partition of topic %s", errStalled, it.topic)})
			} else if all {
				if l.suspect {
					l.suspect = false
					p.endProbeLocked(l)
				}
				p.postponeLocked(l, it)
			}
			return !all
		}
		stays := p.staysLocked(l, it) // read once: the breaker may open between two readings
		switch {
		case !all && (l.replay != nil || l.suspect || it.topicErr != nil || stays):
			return true
		case l.replay != nil && !l.replay.isClaimed():
			p.endReplayLocked(l, replayEnd{err: errClaimLost})
			return false
		case stays:
			if l.outstanding > 0 && (l.replay != nil || !p.behindLocked(l, it)) {
				return false
			}
			if l.replay != nil {
				p.endReplayLocked(l, replayEnd{err: fmt.Errorf("%w: %w", errBreakerOpen, p.calls.Status().Why())})
			} else if p.writer.mayWriteLocked(l, it) {
				p.writer.startLocked(l)
			}
			return false
		case l.outstanding > 0 && p.mu.flows.waits(l.part, l), l.flight.Rejecting():
			return false
		case l.outstanding > 0 && (l.suspect || l.alone || it.topic != l.part.Topic || !bytes.Equal(it.recordKey(), l.key) || p.producer.MayBeTooLarge(&it.event, it.topic)):
			return false
		case it.topicErr != nil:
			p.refuseLocked(l, it.topicErr)
			return false
		}
		if wait := time.Until(it.event.DeliverAt); !it.event.DeliverAt.IsZero() && wait > 0 {
			p.resumeLocked(l, wait)
			return false
		}
		if !p.producer.Ready(it.topic) {
			if all {
				p.makeTopicLocked(it.topic, l)
			}
			return !all
		}
		key := p.partOfLocked(l, it)
		switch {
		case p.mu.flows.waits(key, l):
			return false
		case !all && p.mu.probes[key] != nil:
			return true
		case p.mu.probes.waits(l, key, &p.mu.flows), !p.sendLocked(l, it, key):
			return false
		}
	}
	return false
}

// staysLocked reports whether the item must not be sent now.
func (p *Publisher) staysLocked(l *lane, it *item) bool {
	if p.calls.State() == BreakerOpen {
		return true
	}
	return l.replay == nil && (it.cause != nil || p.behindLocked(l, it))
}

// behindLocked reports whether a dead letter of the aggregate has to be published before
// the item. Events behind records that the producer has can become dead letters: when these
// records come back, they precede the dead letters.
func (p *Publisher) behindLocked(l *lane, it *item) bool {
	return !p.cfg.relaxed(it.event.Type) && p.mu.deadLetters.BlocksEvent(l.id, it.event.Sequence)
}

// sendLocked passes the item to the producer and reports whether the breaker admitted it.
// It is called locked, which keeps the order of the lane. It neither blocks nor runs the
// callback before it returns.
func (p *Publisher) sendLocked(l *lane, it *item, key Partition) bool {
	now := time.Now()
	if it.call = p.calls.Admit(now); it.call == nil {
		l.home.refused[l] = struct{}{}
		return false
	}
	it.state = sent
	it.attempts++
	it.sentAt = now
	if l.outstanding == 0 {
		l.flight.Begin(it.topic)
		l.home.sending[l] = struct{}{}
	}
	l.outstanding++
	l.alone = p.producer.MayBeTooLarge(&it.event, it.topic)
	p.mu.flows.begin(it, key)
	l.part, l.key = key, it.recordKey()
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
		if l.failed == nil && !l.suspect {
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
	l.outstanding--
	if l.outstanding == 0 {
		l.flight.End()
		delete(l.home.sending, l)
	}
	if err == nil {
		p.calls.Acknowledged(now)
	}
	last, resumed, wasStalled, wasGated := p.mu.flows.end(it, err == nil, now)
	p.resumeAllLocked(resumed, wasStalled)
	if wasGated {
		p.fatal(ErrPartitionResumed)
	}
	if last && p.mu.probes[it.part] != nil {
		defer p.pumpProbe(it.part)
	}
	if err != nil && producer.Rejected(r) {
		it.state, it.attempts = queued, it.attempts-1
		p.calls.Answered(it.call, calls.ErrUncounted)
		it.call = nil
		p.nextUnlock(l, lock)
		return
	}
	made := p.calls.Attempt(it.call)
	if errors.Is(err, producer.ErrRecalled) {
		made-- // the last one was canceled
	}
	it.attempts = max(it.attempts, made)
	p.calls.Answered(it.call, p.outcome(l, err))
	it.call = nil
	if err != nil {
		p.backLocked(l, it, err)
		lock.Unlock()
		return
	}
	if l.suspect {
		l.suspect = false
		p.endProbeLocked(l)
		p.releaseLocked(l)
	}
	if l.replay != nil {
		it.state = acked
		p.replayedLocked(l, it, r)
		lock.Unlock()
	} else {
		p.settleLocked(l, it, true)
		p.nextUnlock(l, lock)
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

// backLocked queues an item that was not written.
func (p *Publisher) backLocked(l *lane, it *item, err error) {
	it.state = queued
	class := failure.Classify(err)
	if class != failure.Stopped {
		p.Metrics.Failures.WithLabelValues(class.String()).Inc()
	}
	if producer.StateChanged(err) {
		p.producer.Catalog.Forget(it.topic)
	}
	// Of several errors returned together the most serious decides.
	if l.failed == nil || failure.Classify(l.failed) < class {
		l.failed = err
	}
	p.nextLocked(l)
}

// nextUnlock continues the lane after a result, removes it if it has no items left, and
// unlocks the lock that lockFor returned.
func (p *Publisher) nextUnlock(l *lane, lock sync.Locker) {
	more := false
	if lock == l.home {
		more = p.pump(l, false)
	} else {
		p.nextLocked(l)
	}
	l.home.rest(l)
	lock.Unlock()
	if more {
		p.pumpAll(l)
	}
}

// nextLocked continues the lane, after a failure once all its sent items are returned.
func (p *Publisher) nextLocked(l *lane) {
	if l.failed == nil {
		p.pumpLocked(l)
		return
	}
	if l.outstanding > 0 {
		return
	}
	err := l.failed
	front := l.items[0]
	switch failure.Classify(err) {
	case failure.Stopped:
		// The lane stays as it is; the checkpoint does not pass its events.
	case failure.Fatal:
		p.fatal(fmt.Errorf("publish event %s to topic %s: %w", front.event.ID, front.topic, err))
	case failure.Permanent:
		p.refuseLocked(l, err)
	case failure.Transient:
		p.endProbeLocked(l)
		p.retryLocked(l, front, err)
	}
}

// retryLocked continues a lane whose front was not written. Called with nothing
// outstanding.
func (p *Publisher) retryLocked(l *lane, front *item, err error) {
	switch {
	case p.calls.State() == BreakerOpen, errors.Is(err, producer.ErrRecalled):
		l.failed = nil
		p.pumpLocked(l)
	case front.attempts >= len(p.cfg.RetryDelays) && l.replay != nil:
		p.endReplayLocked(l, replayEnd{err: usedUp(front, err)})
	case front.attempts >= len(p.cfg.RetryDelays) && p.table.exists():
		p.writer.writeForLocked(l, usedUp(front, err))
	default:
		wait := p.cfg.retryWait(front.attempts)
		p.log.Warn("event not published, retrying", "event_id", front.event.ID, "aggregate_id", l.id,
			"topic", front.topic, "attempt", front.attempts, "wait", wait, "err", err, trace.Attrs(front.event.Headers))
		p.resumeLocked(l, wait)
	}
}

func usedUp(it *item, err error) error {
	return fmt.Errorf("not acknowledged in %d attempts: %w", it.attempts, err)
}

// releaseLocked ends a hold.
func (p *Publisher) releaseLocked(l *lane) {
	if l.hold == nil {
		return
	}
	p.log.Info("aggregate released", "aggregate_id", l.id, "held_for", time.Since(l.hold.since))
	delete(l.home.held, l.id)
	l.hold = nil
}

// resumeLocked restarts the lane after wait.
func (p *Publisher) resumeLocked(l *lane, wait time.Duration) {
	l.paused = true
	time.AfterFunc(wait, func() { p.restart(l) })
}

func (p *Publisher) restart(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.paused, l.failed = false, nil
	p.pumpLocked(l)
}

// partOfLocked returns the partition of the item: that of the outstanding records of its
// lane, else the one that its key determines.
func (p *Publisher) partOfLocked(l *lane, it *item) Partition {
	if l.outstanding > 0 && l.part.Topic == it.topic {
		return l.part
	}
	return Partition{it.topic, p.producer.Partitions.Part(it.topic, it.recordKey())}
}

// makeTopicLocked creates the topic and then restarts the lanes that wait for it.
func (p *Publisher) makeTopicLocked(topic string, l *lane) {
	key := Partition{topic, -1}
	f := p.mu.flows.get(key)
	f.waiting[l] = struct{}{}
	if f.creating {
		return
	}
	f.creating = true
	p.calls.Wake() // the creation may take longer than other lanes may wait
	p.wg.Go(func() {
		err := p.EnsureTopic(p.ctx, topic)
		p.mu.Lock()
		defer p.mu.Unlock()
		waiting, wasGated := p.mu.flows.created(key)
		if wasGated {
			p.fatal(ErrPartitionResumed)
		}
		for l := range waiting {
			it := l.firstQueued()
			switch {
			case err == nil:
				p.pumpLocked(l)
			case it == nil || it.topic != topic || l.outstanding > 0 || l.writing || l.paused || l.failed != nil:
				// The lane does not wait for this topic now.
			case failure.Classify(err) == failure.Permanent && !p.staysLocked(l, it):
				p.refuseLocked(l, err)
			}
		}
	})
}

// endReplayLocked ends a replay lane.
func (p *Publisher) endReplayLocked(l *lane, end replayEnd) {
	if _, ok := p.mu.replaying[l]; !ok {
		return
	}
	delete(p.mu.replaying, l)
	l.paused = true
	l.items[0].state = acked // lists that still contain the lane send nothing of it
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
