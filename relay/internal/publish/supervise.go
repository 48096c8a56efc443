package publish

import (
	"context"
	"time"

	"github.com/gocql/gocql"
)

// watch handles timeouts, failed connections, stalled partitions and changes of the
// breaker until the publisher is closed.
func (p *Publisher) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-timer.C:
		case <-p.calls.Wakes():
		}
		p.mu.Lock()
		wait := p.checkLocked()
		p.mu.Unlock()
		timer.Reset(wait)
	}
}

// checkLocked handles calls without an answer, stalled partitions and a change of the
// breaker, and retries the lanes that the breaker refused. It returns the time until the
// next check.
func (p *Publisher) checkLocked() time.Duration {
	now := time.Now()
	used, busy := p.partitions.counts()
	p.calls.Check(now, busy)
	p.checkFlowsLocked(now)
	p.answerBreakerLocked()
	p.pumpRefusedLocked()
	return p.calls.NextCheck(used > 0)
}

// pumpRefusedLocked retries the lanes that the breaker refused: they are the next probes of a
// half-open one.
func (p *Publisher) pumpRefusedLocked() {
	if p.calls.State() == BreakerOpen {
		return
	}
	for l := range p.mu.takeRefused() {
		if len(l.items) > 0 {
			p.pumpLocked(l)
		}
	}
}

// answerBreakerLocked reacts to a change of the breaker.
func (p *Publisher) answerBreakerLocked() {
	state, changed := p.calls.TakeChange()
	if !changed {
		if state == BreakerHalfOpen {
			if p.undecidedLocked() {
				p.pumpLanesLocked()
			}
			p.pingLocked()
		}
		return
	}
	switch state {
	case BreakerOpen:
		// Records that the broker cannot have are returned, then spilled or kept in their lanes.
		for i := range p.mu.stripes {
			for l := range p.mu.stripes[i].sending {
				l.flight.Recall()
			}
		}
	case BreakerHalfOpen, BreakerClosed:
		p.wake() // an aggregate's dead letters are published before its newer events
	}
	p.mu.takeRefused() // they are among the lanes
	for l := range p.mu.replaying {
		p.pumpLocked(l)
	}
	p.pumpLanesLocked()
}

// pumpLanesLocked sends what may be sent now.
func (p *Publisher) pumpLanesLocked() {
	for i := range p.mu.stripes {
		for _, l := range p.mu.stripes[i].lanes {
			p.pumpLocked(l)
		}
	}
}

// undecidedLocked reports whether the breaker is half-open and nothing decides: no record and no
// replay is a probe. The events in memory then wait behind dead letters that cannot be replayed,
// since they wait for an operator, or for a reader that waits for room in memory.
func (p *Publisher) undecidedLocked() bool {
	return p.mu.deadLetters.replays == 0 && p.calls.Unprobed(time.Now())
}

// pingLocked probes the broker when there is no event or dead letter to publish: its record
// would be the probe.
func (p *Publisher) pingLocked() {
	if p.mu.closed || p.waitsLocked(time.Now()) {
		return
	}
	c := p.calls.BeginPing()
	if c == nil {
		return
	}
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.AttemptTimeout)
		defer cancel()
		p.calls.EndPing(c, p.producer.Ping(ctx))
	})
}

// waitsLocked reports whether an event waits for its acknowledgement, or a dead letter for the
// breaker.
func (p *Publisher) waitsLocked(now time.Time) bool {
	if p.mu.deadLetters.replays > 0 {
		return true
	}
	if c := p.mu.deadLetters.Front(now); c != nil {
		if due, _ := c.IsDue(now, false); due {
			return true
		}
	}
	open, blocked := p.remainingLocked()
	return open > blocked
}

// checkFlowsLocked detects stalled partitions and spills their waiting events while the breaker
// is closed. To a half-open one, records of a stalled partition are no probes: the producer retries
// those that it has, and one partition must not decide for the others.
func (p *Publisher) checkFlowsLocked(now time.Time) {
	stalls, suspects, silent := p.partitions.stall(now)
	closed := p.calls.State() == BreakerClosed
	for _, s := range stalls {
		if closed { // else all partitions may be
			p.log.Warn("a partition acknowledges nothing; its events wait", "topic", s.Topic, "partition", s.Partition,
				"for", now.Sub(s.Since), "records", s.Records)
		}
		p.pumpSendingLocked(Partition{s.Topic, s.Partition}) // they wait for the partition now
	}
	for _, l := range suspects {
		p.pumpLocked(l)
	}
	if !closed {
		return
	}
	filling := 2*p.ids.open.Load() >= int64(p.cfg.MaxInFlightRecords) || 2*p.ids.bytes.Load() >= p.cfg.MaxInFlightBytes
	for key, d := range silent {
		usedUp := d >= UsedUpAfter(p.cfg.RetryDelays, p.cfg.AttemptTimeout)
		full := usedUp // without dead letters
		if p.table.exists() {
			full = (filling || usedUp) && p.spillLocked(key)
		}
		if full && filling {
			p.gateStalledLocked(key, d)
		}
	}
}

// pumpSendingLocked executes the next steps of the lanes with records for the partition.
func (p *Publisher) pumpSendingLocked(key Partition) {
	for i := range p.mu.stripes {
		for l := range p.mu.stripes[i].sending {
			if l.part == key {
				p.pumpLocked(l)
			}
		}
	}
}

// spillLocked makes dead letters of the events that wait for the partition, up to
// Config.SpillLimit. It reports whether events have to wait for another reason than a retry: the
// limit is reached, or they have no numbers, and the producer has an earlier one of their aggregate.
func (p *Publisher) spillLocked(key Partition) (full bool) {
	waiting := p.partitions.set(key, partSpills)
	for l := range waiting {
		p.pumpLocked(l)
		l.home.rest(l)
		it := l.firstQueued()
		full = full || it != nil && it.event.Sequence == 0 && l.outstanding > 0 && l.state == laneReady && l.replay == nil
	}
	return full || len(waiting) > 0 && !p.maySpillLocked()
}

// maySpillLocked reports whether the number of spilled dead letters is below its limit.
func (p *Publisher) maySpillLocked() bool {
	return p.mu.deadLetters.Spilled()+p.mu.deadLetters.writing < p.cfg.SpillLimit
}

// waitForPartitionLocked makes a dead letter, which is due at the time at because its partition
// is stalled, due as soon as a partition resumes. Otherwise the dead letters of a stalled partition
// would be published as slowly as they were made, or called off.
func (p *Publisher) waitForPartitionLocked(id gocql.UUID, at int64) {
	p.mu.deadLetters.stalled[id] = at
	if len(p.partitions.stalled()) == 0 { // it has resumed since
		p.mu.deadLetters.resumeStalled()
	}
}

// resumeAllLocked resumes lanes that waited for a partition, and the replays that were called
// off if the partition was stalled.
func (p *Publisher) resumeAllLocked(r *resumption) {
	if r.wasGated {
		p.fatal(ErrPartitionResumed)
	}
	if len(r.lanes) == 0 && !r.wasStalled || p.mu.closed {
		return
	}
	waiting, wasStalled := r.lanes, r.wasStalled
	p.wg.Go(func() { // the caller may be changing a lane
		p.mu.Lock()
		defer p.mu.Unlock()
		if wasStalled {
			p.mu.deadLetters.resumeStalled()
			p.wake()
		}
		for l := range waiting {
			p.pumpLocked(l)
		}
	})
}
