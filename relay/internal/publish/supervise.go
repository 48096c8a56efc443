package publish

import (
	"time"

	"github.com/gocql/gocql"
)

// check handles calls without an answer, stalled partitions and a change of the
// breaker, and retries the lanes that the breaker refused. It returns the time until the
// next check.
func (c *cell) check() time.Duration {
	used, busy := c.partitions.counts()
	c.calls.Check(c.now, busy)
	c.checkFlows()
	c.answerBreaker()
	c.pumpRefused()
	return c.calls.NextCheck(used > 0)
}

// pumpRefused retries the lanes that the breaker refused: they are the next probes of a
// half-open one.
func (c *cell) pumpRefused() {
	if c.calls.State() == BreakerOpen || len(c.refused) == 0 {
		return
	}
	refused := c.refused
	c.refused = make(map[*lane]struct{})
	for l := range refused {
		if len(l.items) > 0 {
			c.pump(l)
		}
	}
}

// answerBreaker reacts to a change of the breaker.
func (c *cell) answerBreaker() {
	state, changed := c.calls.TakeChange()
	if !changed {
		if state == BreakerHalfOpen {
			if c.isUndecided() {
				c.pumpLanes()
			}
			c.ping()
		}
		return
	}
	switch state {
	case BreakerOpen:
		// Records that the broker cannot have are returned, then spilled or kept in their lanes.
		for _, l := range c.sending {
			c.do(effect{do: effRecall, lane: l})
		}
	case BreakerHalfOpen, BreakerClosed:
		c.do(effect{do: effReplay}) // an aggregate's dead letters are published before its newer events
	}
	clear(c.refused) // they are among the lanes
	for l := range c.replaying {
		c.pump(l)
	}
	c.pumpLanes()
}

// pumpLanes sends what may be sent now.
func (c *cell) pumpLanes() {
	for _, l := range c.lanes {
		c.pump(l)
	}
}

// isUndecided reports whether the breaker is half-open and nothing decides: no record and no
// replay is a probe. The events in memory then wait behind dead letters that cannot be replayed,
// since they wait for an operator, or for a reader that waits for room in memory.
func (c *cell) isUndecided() bool {
	return c.dead.replays == 0 && c.calls.Unprobed(c.now)
}

// ping probes the broker when there is no event or dead letter to publish: its record
// would be the probe.
func (c *cell) ping() {
	if c.closed || c.isWaiting() {
		return
	}
	if call := c.calls.BeginPing(); call != nil {
		c.do(effect{do: effPing, call: call})
	}
}

// isWaiting reports whether an event waits for its acknowledgement, or a dead letter for the
// breaker.
func (c *cell) isWaiting() bool {
	if c.dead.replays > 0 {
		return true
	}
	now := c.now
	if chain := c.dead.Front(now); chain != nil {
		if due, _ := chain.IsDue(now); due {
			return true
		}
	}
	open, blocked := c.remaining()
	return open > blocked
}

// checkFlows detects stalled partitions and spills their waiting events while the breaker
// is closed. To a half-open one, records of a stalled partition are no probes: the producer retries
// the records that it has, and one partition must not decide for the others.
func (c *cell) checkFlows() {
	stalls, suspects, silent := c.partitions.stall(c.now)
	closed := c.calls.State() == BreakerClosed
	for _, s := range stalls {
		if closed { // else all partitions may be
			silent := c.now.Sub(s.Since)
			c.report(func(to *Publisher) {
				to.log.Warn("a partition acknowledges nothing; its events wait", "topic", s.Topic, "partition", s.Partition,
					"for", silent, "records", s.Records)
			})
		}
		c.pumpSending(Partition{s.Topic, s.Partition}) // they wait for the partition now
	}
	for _, l := range suspects {
		c.pump(l)
	}
	if !closed {
		return
	}
	filling := 2*c.ids.open >= int64(c.cfg.MaxInFlightRecords) || 2*c.ids.bytes >= c.cfg.MaxInFlightBytes
	for key, d := range silent {
		usedUp := d >= UsedUpAfter(c.cfg.RetryDelays, c.cfg.AttemptTimeout)
		full := usedUp // without dead letters
		if c.cfg.writesDeadLetters() {
			full = (filling || usedUp) && c.spill(key)
		}
		if full && filling {
			c.gateStalled(key, d)
		}
	}
}

// pumpSending executes the next steps of the lanes with records for the partition.
func (c *cell) pumpSending(key Partition) {
	for _, l := range c.sending {
		if l.part == key {
			c.pump(l)
		}
	}
}

// spill makes dead letters of the events that wait for the partition, up to
// Config.SpillLimit. It reports whether events have to wait for another reason than a retry: the
// limit is reached, or they have no numbers, and the producer has an earlier one of their aggregate.
func (c *cell) spill(key Partition) (full bool) {
	waiting := c.partitions.set(key, partSpills)
	for l := range waiting {
		c.pump(l)
		it := l.firstQueued()
		full = full || it != nil && it.event.Sequence == 0 && l.outstanding > 0 && l.state == laneReady && l.replay == nil
	}
	return full || len(waiting) > 0 && !c.maySpill()
}

// maySpill reports whether the number of spilled dead letters is below its limit.
func (c *cell) maySpill() bool {
	return c.dead.Spilled()+c.dead.writing < c.cfg.SpillLimit
}

// waitForPartition makes a dead letter, which is due at the time at because its partition
// is stalled, due as soon as a partition resumes. Otherwise the dead letters of a stalled partition
// would be published as slowly as they were made, or called off.
func (c *cell) waitForPartition(id gocql.UUID, at int64) {
	c.dead.stalled[id] = at
	if len(c.partitions.stalled()) == 0 { // it has resumed since
		c.dead.resumeStalled()
	}
}

// resume lets lanes that waited for a partition decide again in the next step, because this one may
// be changing them, and makes the replays due that were called off if the partition was stalled.
func (c *cell) resume(r *resumption) {
	if r.wasGated {
		c.do(effect{do: effFail, err: ErrPartitionResumed})
	}
	if c.closed {
		return
	}
	if r.wasStalled {
		c.dead.resumeStalled()
		c.do(effect{do: effReplay})
	}
	for l := range r.lanes {
		c.due = append(c.due, l)
	}
}
