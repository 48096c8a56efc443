package publish

import (
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// maxBurst is the number of records of a lane that one step sends. The producer may reject the
// second one, and with it all that follow it; the step after that knows.
const maxBurst = 32

// pump executes the next steps of the lane until it has to wait, and removes it if it has no events.
func (c *cell) pump(l *lane) {
	for sent := 0; ; {
		if _, rests := l.rests(); rests {
			break
		}
		v := c.view(l)
		s := l.decide(&v, c.now)
		if s.do == actSend {
			if sent++; sent > maxBurst {
				c.due, l.kept = append(c.due, l), true
				break
			}
		}
		if !c.execute(l, &s, &v) {
			break
		}
	}
	c.rest(l)
}

// view returns the state on which the next step of the lane depends.
func (c *cell) view(l *lane) view {
	v := view{
		stopped: c.closed || c.cfg.fenced(), rejecting: l.outstanding > 0 && c.env.isRejecting(l),
		breaker: c.calls.State(), table: c.cfg.writesDeadLetters(), attempts: len(c.cfg.RetryDelays),
	}
	if l.replay != nil {
		v.replay = claimed
		if !l.replay.isClaimed(c.deadLetterTime()) {
			v.replay = claimLost
		}
	}
	if v.breaker == BreakerOpen {
		v.why = c.calls.Status().Why()
		v.spills = c.cfg.WhenOpen == WhenOpenSpill && c.maySpill()
	}
	it := l.firstQueued()
	if it == nil {
		return v
	}
	v.gated = c.gated && it.topicErr == nil && c.env.Gated(it.topic, it.recordKey())
	if v.behind = l.replay == nil && c.isBehind(l, it); v.behind {
		chain := c.dead.Of(l.id)
		v.chased = chain.Draining && len(chain.DeadLetters) <= maxChase
		v.undecided = v.breaker == BreakerHalfOpen && c.isUndecided()
	}
	v.ready = c.env.Ready(it.topic)
	v.large = c.env.MayBeTooLarge(&it.event, it.topic)
	switch {
	case l.outstanding > 0:
		v.part = l.part
	case !v.ready:
		v.part = Partition{it.topic, -1}
	default:
		v.part = Partition{it.topic, c.env.Part(it.topic, it.recordKey())}
	}
	if c.partitions.look(&v, l, c.now); v.silent > 0 && v.breaker == BreakerClosed {
		v.spills = c.maySpill()
	}
	return v
}

// isBehind reports whether a dead letter of the aggregate has to be published before
// the item. Events behind records that the producer has can become dead letters: when these
// records come back, they precede the dead letters.
func (c *cell) isBehind(l *lane, it *item) bool {
	return !c.cfg.relaxed(it.event.Type) && c.dead.BlocksEvent(l.id, it.event.Sequence)
}

// execute executes the step, and reports whether to decide again.
func (c *cell) execute(l *lane, s *step, v *view) (again bool) {
	switch s.do {
	case actRetryLater:
		s.until = c.now.Add(c.cfg.retryWait(l.items[0].attempts))
	case actHold:
		s.until = c.now.Add(c.cfg.HoldRetry)
	}
	l.apply(s)
	l.kept = l.kept || s.do != actSend && (s.do != actWait || s.why != forRecords)
	switch s.do {
	case actWait:
		return (s.why == forPartition || s.why == forProbe) && !c.partitions.wait(v.part, l, s.why)
	case actSend:
		return c.send(l, l.firstQueued(), v)
	case actProbe:
		c.endProbe(l) // of another partition: the topic has got more since
		c.partitions.beginProbe(v.part, l, c.now)
		return true
	case actSuspect, actGiveUp, actSpill:
		return true
	case actMakeTopic:
		c.makeTopic(l.firstQueued().topic, l)
		return false
	case actDelay:
		c.do(effect{do: effWake, lane: l, until: s.until})
		return false
	case actEndReplay:
		c.endReplay(l, replayEnd{err: s.err})
		return false
	case actPostpone:
		c.postpone(l, l.firstQueued())
	case actDeadLetter:
		c.do(effect{do: effWrite, lane: l})
	case actRetryLater:
		c.do(effect{do: effWake, lane: l, until: s.until})
		front, attempt, wait, err := l.items[0], l.items[0].attempts, s.until.Sub(c.now), s.err
		c.report(func(to *Publisher) {
			to.log.Warn("event not published, retrying", "event_id", front.event.ID, "aggregate_id", l.id,
				"topic", front.topic, "attempt", attempt, "wait", wait, "err", err, trace.Attrs(front.event.Headers))
		})
	case actHold:
		c.do(effect{do: effWake, lane: l, until: s.until})
		c.hold(l, s.err)
	case actEnd:
		if front := l.items[0]; failure.Classify(s.err) == failure.Fatal {
			c.do(effect{do: effFail, err: fmt.Errorf("publish event %s to topic %s: %w", front.event.ID, front.topic, s.err)})
		}
	}
	c.endProbe(l)
	return s.do == actRetry
}

// endProbe ends the probe of the lane, if it has one, and resumes the lanes that waited for it.
func (c *cell) endProbe(l *lane) {
	for _, next := range c.partitions.endProbe(l) {
		c.pump(next)
	}
}
