package publish

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// view is what a decision about the front of a lane needs to know of everything outside of
// the lane, at one moment.
type view struct {
	// stopped means that nothing may be sent any more: the publisher is closed, or another
	// instance may own the shard.
	stopped bool
	// replay is the state of the claim, if the lane is that of a replay.
	replay claim
	// rejecting means that the producer takes no further record before all are back.
	rejecting bool
	gated     bool // the partition of the front is gated
	ready     bool // the topic of the front may be sent to
	large     bool // the front may be larger than the producer accepts

	breaker BreakerState
	why     error // why the breaker is open

	// part is the partition of the outstanding records, or else that of the front.
	part Partition
	full bool // part is stalled, or has its share of the budget
	// silent is the time for which part acknowledges nothing, if events that wait for it are to
	// become dead letters.
	silent time.Duration
	busy   bool // records of part are outstanding
	// probe is the probe of part.
	probe probeOf

	table     bool // there is a table for dead letters
	spills    bool // an open breaker, or a silent partition, may make dead letters
	behind    bool // a dead letter of the aggregate comes before the front
	chased    bool // the dead letters before the front are being published, and few remain
	undecided bool // the breaker is half-open, and nothing probes it
	attempts  int  // that an event has
}

// claim is the state of the claim of a replayed dead letter.
type claim uint8

const (
	noReplay claim = iota
	claimed
	claimLost
)

// probeOf tells whose probe a partition has.
type probeOf uint8

const (
	noProbe probeOf = iota
	ownProbe
	otherProbe
)

// action is what happens to the front of a lane.
type action uint8

const (
	actWait       action = iota // until what step.why names has changed
	actSend                     // to view.part
	actProbe                    // become the probe of view.part
	actPostpone                 // wait in the log, with all later events
	actDeadLetter               // become a dead letter, because of step.cause
	actEndReplay                // end the replay with step.err
	actMakeTopic                // look up or create the topic
	actDelay                    // wait until step.until
	actRetry                    // continue immediately
	actRetryLater               // wait for the next attempt after step.err
	actSuspect                  // be sent once more, alone
	actHold                     // hold the aggregate because of step.err
	actGiveUp                   // count as failed because of step.cause
	actSpill                    // count as failed because of step.cause, that of a silent partition
	actEnd                      // end the lane because of step.err
)

// reason is what a lane waits for. Each has an end: an event that makes the lane decide again.
type reason uint8

const (
	forNothing   reason = iota // it has no further event: an offer
	forRecords                 // its records with the producer: their results
	forReturn                  // its records with the producer after one failed: their results
	forTime                    // queue.until: a timer
	forWrite                   // a dead letter that is being written: the end of the write
	forBreaker                 // the breaker, with no dead letters to be made: its change
	forProbes                  // the probes of the half-open breaker: their result
	forReplay                  // dead letters of its aggregate that are being replayed: their end
	forPartition               // a partition that is stalled or full: an acknowledgement there
	forProbe                   // a suspect of its partition: its result
	forStop                    // nothing: the relay stops, or its replay has ended
)

// step is the decision about a lane.
type step struct {
	do    action
	why   reason
	until time.Time
	err   error
	cause *deadLetterCause
	// attempts is the least number of attempts that the item counts from now on.
	attempts int
}

func wait(why reason) step { return step{do: actWait, why: why} }

// rests returns the reason for which the lane waits whatever its front is, false if the front decides.
func (q *queue) rests() (why reason, rests bool) {
	switch q.state {
	case laneReturning:
		return forReturn, q.outstanding > 0
	case laneDelayed, laneHeld:
		return forTime, true
	case laneWriting:
		return forWrite, true
	case laneEnded:
		return forStop, true
	}
	return forNothing, q.firstQueued() == nil
}

// decide returns the next step of the lane.
func (q *queue) decide(v *view, now time.Time) step {
	if why, rests := q.rests(); rests {
		return wait(why)
	}
	if q.err != nil {
		return q.judge(v)
	}
	it := q.firstQueued()
	switch {
	case v.stopped:
		return wait(forStop)
	case v.gated && v.replay != noReplay:
		return step{do: actEndReplay, err: fmt.Errorf("%w: partition of topic %s", errStalled, it.topic)}
	case v.gated:
		return step{do: actPostpone}
	case v.replay == claimLost:
		return step{do: actEndReplay, err: errClaimLost}
	case v.breaker == BreakerOpen || v.replay == noReplay && (q.lastingCause(it) != nil || v.behind):
		return q.decideBlocked(it, v)
	case q.outstanding > 0 && v.full:
		return q.decideFull(it, v)
	case q.outstanding > 0 && (v.rejecting || q.state == laneSuspect || q.alone || !q.joins(it) || v.large):
		return wait(forRecords)
	case it.topicErr != nil:
		return q.refuse(it.topicErr, v)
	case it.event.DeliverAt.After(now):
		return step{do: actDelay, until: it.event.DeliverAt}
	case !v.ready && v.silent == 0:
		return step{do: actMakeTopic}
	case v.full:
		return q.decideFull(it, v)
	case v.probe == noProbe && q.state == laneSuspect:
		return step{do: actProbe}
	case v.probe == otherProbe, v.probe == ownProbe && v.busy: // the last record to return decides again
		return wait(forProbe)
	}
	return step{do: actSend}
}

// joins reports whether the item may be with the producer together with the outstanding ones:
// for another topic, or under another key, its time in the log could precede theirs.
func (q *queue) joins(it *item) bool {
	return it.topicErr == nil && it.topic == q.part.Topic && bytes.Equal(it.recordKey(), q.key)
}

// decideFull returns the next step of an item whose partition takes nothing now: while it is silent,
// items become dead letters.
func (q *queue) decideFull(it *item, v *view) step {
	if v.silent == 0 || v.breaker != BreakerClosed || !v.table || !v.spills || q.outstanding > 0 && (q.state == laneSuspect || it.event.Sequence == 0 || v.replay != noReplay) {
		return wait(forPartition)
	}
	err := fmt.Errorf("partition %d of topic %s has acknowledged nothing for %s: %w", v.part.Part, v.part.Topic, v.silent.Round(time.Second), calls.ErrNoAnswer)
	switch {
	case v.replay != noReplay:
		return step{do: actEndReplay, err: fmt.Errorf("%w: %w", errStalled, err)}
	case q.outstanding > 0:
		return step{do: actSpill, cause: &deadLetterCause{class: chains.ClassBehind, err: fmt.Errorf("an earlier event of the aggregate is with the producer: %w", err)}}
	}
	err = usedUp(max(it.attempts, v.attempts), err)
	return step{do: actSpill, attempts: v.attempts, cause: &deadLetterCause{class: classifyError(err), err: err, stalled: true}}
}

// decideBlocked returns the next step of an item that must not be sent now.
func (q *queue) decideBlocked(it *item, v *view) step {
	switch {
	case q.outstanding > 0 && (v.replay != noReplay || !v.behind && !it.isBehind()):
		return wait(forRecords)
	case v.replay != noReplay:
		return step{do: actEndReplay, err: fmt.Errorf("%w: %w", errBreakerOpen, v.why)}
	}
	return q.decideDeadLetter(it, v)
}

// decideDeadLetter returns actDeadLetter if the item becomes a dead letter: it failed, an
// earlier event of its aggregate is a dead letter, or the breaker is open and spills. Otherwise
// it returns the reason for which the item waits; forNothing, if it may be sent.
func (q *queue) decideDeadLetter(it *item, v *view) step {
	switch cause := q.lastingCause(it); {
	case !v.table:
		return wait(forBreaker)
	case cause != nil:
		return step{do: actDeadLetter, cause: cause}
	case v.breaker == BreakerHalfOpen && v.behind && !v.undecided:
		return wait(forProbes)
	case v.breaker == BreakerOpen && !v.spills:
		return wait(forBreaker)
	case v.breaker == BreakerOpen && !v.behind:
		return step{do: actDeadLetter, cause: &deadLetterCause{class: chains.ClassBreakerOpen, err: fmt.Errorf("%w: %w", errBreakerOpen, v.why)}}
	case v.breaker == BreakerClosed && v.behind && v.chased:
		return wait(forReplay)
	case v.behind:
		return step{do: actDeadLetter}
	}
	return wait(forNothing)
}

// lastingCause returns the cause for which the item becomes a dead letter whatever changes, nil if it
// has none: an open breaker closes, and the records before it come back.
func (q *queue) lastingCause(it *item) *deadLetterCause {
	if c := it.cause; c != nil && c.class != chains.ClassBreakerOpen && (!it.isBehind() || q.outstanding > 0) {
		return c
	}
	return nil
}

// judge returns what follows from the error of the front, which is back with all records.
func (q *queue) judge(v *view) step {
	err, front := q.err, q.items[0]
	switch failure.Classify(err) {
	case failure.Permanent:
		return q.refuse(err, v)
	case failure.Transient:
	default: // the checkpoint does not pass its events
		return step{do: actEnd, err: err}
	}
	switch {
	case v.breaker == BreakerOpen, errors.Is(err, producer.ErrRecalled):
		return step{do: actRetry}
	case front.attempts < v.attempts || v.replay == noReplay && !v.table:
		return step{do: actRetryLater, err: err}
	}
	return q.giveUp(usedUp(front.attempts, err), v)
}

// refuse returns what follows from a permanent error of the front. The first time, the item may
// have failed together with another one of its partition, so it is sent once more, alone,
// unless the error is the relay's own or concerns the whole topic.
func (q *queue) refuse(err error, v *view) step {
	switch {
	case q.state != laneSuspect && q.items[0].topicErr == nil && !failure.IsTopicRefused(err):
		return step{do: actSuspect}
	case v.replay == noReplay && !v.table:
		return step{do: actHold, err: err}
	}
	return q.giveUp(err, v)
}

// giveUp returns what follows from an error that another attempt cannot change.
func (q *queue) giveUp(err error, v *view) step {
	if v.replay != noReplay {
		return step{do: actEndReplay, err: err}
	}
	return step{do: actGiveUp, cause: &deadLetterCause{class: classifyError(err), err: err}}
}

func usedUp(attempts int, err error) error {
	return fmt.Errorf("not acknowledged in %d attempts: %w", attempts, err)
}
