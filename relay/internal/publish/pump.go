package publish

import (
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// pumpLocked executes the next steps of the lane. Called with all stripes locked.
func (p *Publisher) pumpLocked(l *lane) { p.pump(l, true) }

// pumpAll is pumpLocked, without locks.
func (p *Publisher) pumpAll(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pumpLocked(l)
}

// pump executes the next steps of the lane until it has to wait. Called with the lane's stripe
// locked, or with all. If the next step changes what other stripes read, as a dead letter or
// a probe does, and only one is locked, it returns more: pumpAll continues.
func (p *Publisher) pump(l *lane, all bool) (more bool) {
	var now time.Time
	for {
		if _, rests := l.rests(); rests {
			return false
		}
		if now.IsZero() {
			now = time.Now()
		}
		v := p.viewLocked(l, now)
		s := l.decide(&v, now)
		if !all && !s.ofLane(&v) {
			return true
		}
		if !p.executeLocked(l, &s, &v, now) {
			return false
		}
	}
}

// viewLocked returns what the next step of the lane depends on.
func (p *Publisher) viewLocked(l *lane, now time.Time) view {
	v := view{
		stopped: p.mu.closed || p.cfg.fenced(), rejecting: l.flight.Rejecting(),
		breaker: p.calls.State(), table: p.table.exists(), attempts: len(p.cfg.RetryDelays),
	}
	if l.replay != nil {
		v.replay = claimed
		if !l.replay.isClaimed() {
			v.replay = claimLost
		}
	}
	if v.breaker == BreakerOpen {
		v.why = p.calls.Status().Why()
		v.spills = p.cfg.Spill && p.maySpillLocked()
	}
	it := l.firstQueued()
	if it == nil {
		return v
	}
	v.gated = p.isGated(it)
	if v.behind = l.replay == nil && p.behindLocked(l, it); v.behind {
		c := p.mu.deadLetters.Of(l.id)
		v.chased = c.Draining && len(c.DeadLetters) <= maxChase
		v.undecided = v.breaker == BreakerHalfOpen && p.undecidedLocked()
	}
	v.ready = p.producer.Ready(it.topic)
	v.large = p.producer.MayBeTooLarge(&it.event, it.topic)
	switch {
	case l.outstanding > 0:
		v.part = l.part
	case !v.ready:
		v.part = Partition{it.topic, -1}
	default:
		v.part = Partition{it.topic, p.producer.Partitions.Part(it.topic, it.recordKey())}
	}
	if p.partitions.look(&v, l, now); v.silent > 0 && v.breaker == BreakerClosed {
		v.spills = p.maySpillLocked()
	}
	return v
}

// behindLocked reports whether a dead letter of the aggregate has to be published before
// the item. Events behind records that the producer has can become dead letters: when these
// records come back, they precede the dead letters.
func (p *Publisher) behindLocked(l *lane, it *item) bool {
	return !p.cfg.relaxed(it.event.Type) && p.mu.deadLetters.BlocksEvent(l.id, it.event.Sequence)
}

// executeLocked executes the step, and reports whether to decide again.
func (p *Publisher) executeLocked(l *lane, s *step, v *view, now time.Time) (again bool) {
	switch s.do {
	case actRetryLater:
		s.until = now.Add(p.cfg.retryWait(l.items[0].attempts))
	case actHold:
		s.until = now.Add(p.cfg.HoldRetry)
	}
	l.apply(s)
	switch s.do {
	case actWait:
		return (s.why == forPartition || s.why == forProbe) && !p.partitions.wait(v.part, l, s.why)
	case actSend:
		return p.sendLocked(l, l.firstQueued(), v, now)
	case actProbe:
		p.endProbeLocked(l) // of another partition: the topic has got more since
		p.partitions.beginProbe(v.part, l)
		return true
	case actSuspect, actGiveUp, actSpill:
		return true
	case actMakeTopic:
		p.makeTopicLocked(l.firstQueued().topic, l)
		return false
	case actDelay:
		p.wakeAtLocked(l, s.until)
		return false
	case actEndReplay:
		p.endReplayLocked(l, replayEnd{err: s.err})
		return false
	case actPostpone:
		p.postponeLocked(l, l.firstQueued())
	case actDeadLetter:
		p.writer.start(l)
	case actRetryLater:
		p.wakeAtLocked(l, s.until)
		front := l.items[0]
		p.log.Warn("event not published, retrying", "event_id", front.event.ID, "aggregate_id", l.id,
			"topic", front.topic, "attempt", front.attempts, "wait", s.until.Sub(now), "err", s.err, trace.Attrs(front.event.Headers))
	case actHold:
		p.wakeAtLocked(l, s.until)
		p.holdLocked(l, s.err, now)
	case actEnd:
		if front := l.items[0]; failure.Classify(s.err) == failure.Fatal {
			p.fatal(fmt.Errorf("publish event %s to topic %s: %w", front.event.ID, front.topic, s.err))
		}
	}
	p.endProbeLocked(l)
	return s.do == actRetry
}

// wakeAtLocked ends the delay of the lane at its time.
func (p *Publisher) wakeAtLocked(l *lane, until time.Time) {
	time.AfterFunc(time.Until(until), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.wake(until) {
			p.pumpLocked(l)
		}
	})
}

// endProbeLocked ends the probe of the lane, if it has one, and resumes the lanes that waited for it.
func (p *Publisher) endProbeLocked(l *lane) {
	for _, next := range p.partitions.endProbe(l) {
		p.pumpLocked(next)
	}
}
