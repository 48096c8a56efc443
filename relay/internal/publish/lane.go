package publish

import (
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// lane is the queue of one aggregate, or of a replay, with the state that sending needs.
type lane struct {
	queue
	id   gocql.UUID
	line dedup.Line
	// flight contains the outstanding records. While it rejects records, nothing is sent
	// until all are back.
	flight    producer.Flight
	publisher *Publisher // that has sent a record
	probed    Partition  // the partition that the lane probes or probed last
	hold      *Hold
	// replay is the replay that the lane belongs to; nil for an aggregate's own lane.
	replay replay
	// first is the item that the lane was made for, one the usual storage of its items.
	first item
	one   [1]*item
	// sendingAt is the place of the lane in cell.sending.
	sendingAt int
	// kept means that the lane was in another list, or had a timer, which may still have it: it is not
	// used for another aggregate.
	kept bool
}

// free are unused values, at most maxFree: the driver uses them again, so that an event needs no
// allocation.
type free[T any] []*T

// maxFree is how many unused values of a type are kept.
const maxFree = 1024

// take returns an unused value.
func (f *free[T]) take() *T {
	n := len(*f) - 1
	if n < 0 {
		return new(T)
	}
	v := (*f)[n]
	*f = (*f)[:n]
	return v
}

// give takes back a value that nothing has and that refers to nothing.
func (f *free[T]) give(v *T) {
	if len(*f) < maxFree {
		*f = append(*f, v)
	}
}

// clear prepares a lane without items for another aggregate.
func (l *lane) clear() {
	l.queue, l.probed, l.hold, l.one = queue{key: l.key[:0]}, Partition{}, nil, [1]*item{}
	l.first.clear()
}

// laneSet is a set of lanes, each in one such set at most. A map would cost more than all else that
// a lane needs to begin.
type laneSet []*lane

// add adds a lane that the set does not contain.
func (s *laneSet) add(l *lane) {
	l.sendingAt = len(*s)
	*s = append(*s, l)
}

// remove removes a lane that the set contains.
func (s *laneSet) remove(l *lane) {
	n := len(*s) - 1
	last := (*s)[n]
	(*s)[l.sendingAt], last.sendingAt = last, l.sendingAt
	(*s)[n] = nil
	*s = (*s)[:n]
}

// queue contains the events of one aggregate in their order: first the events that the producer
// has, then the waiting ones. Its methods have no effects outside of it, read no clock and take
// no locks: decide returns the next step, apply changes the queue for it, and the caller
// executes the step.
type queue struct {
	state laneState
	items []*item
	// err is the most serious error of the records that came back since the front was sent.
	err error
	// until is the time for which the front waits in laneDelayed and laneHeld.
	until time.Time

	outstanding int       // items with the producer
	part        Partition // of the outstanding items
	key         []byte    // of their records: one with another key may belong to another partition
	// alone means that the outstanding item may be larger than the producer accepts:
	// the producer would fail it alone and publish the items after it.
	alone bool
}

type itemState uint8

const (
	queued itemState = iota
	sent
	acked
)

// item is an event that is not acknowledged yet.
type item struct {
	lane     *lane
	event    outbox.Event
	original outbox.ID // the event that an edited dead letter replaces; zero for others
	written  int64     // write time in microseconds, 0 if unknown
	captured time.Time // when the publisher accepted it
	topic    string
	key      []byte     // that of its record once it was needed: see recordKey
	part     Partition  // the partition that it was sent to
	in       *partition // the same, while the producer has the record
	topicErr error
	bytes    int64
	state    itemState
	by       Source
	earlier  int32 // attempts before it became the replayed dead letter
	attempts int
	sentAt   time.Time // when the producer received it
	// shown means that the sweep reader has read the event.
	shown bool
	// scanned means that a backfill offered the event: the CDC log never contains it.
	scanned bool
	settled Settlement
	also    []Settlement // of further offers
	call    *calls.Call
	slot    *slot // of the record, while the producer has it
	// cause is the reason why the event becomes a dead letter, nil if it does not.
	cause *deadLetterCause
}

// textSize is the length of the text form of a UUID.
const textSize = 36

// recordKey returns the key of the item's record.
func (it *item) recordKey() []byte {
	if len(it.key) == 0 {
		it.key = it.event.AppendKey(slices.Grow(it.key, textSize))
	}
	return it.key
}

// clear prepares the item for another event.
func (it *item) clear() { *it = item{key: it.key[:0]} }

// addSettlement adds where the settlement of the item goes.
func (it *item) addSettlement(s Settlement) {
	switch {
	case s.To == nil:
	case it.settled.To == nil:
		it.settled = s
	default:
		it.also = append(it.also, s)
	}
}

// isBehind reports whether the item is to become a dead letter because a record before it may not
// come back.
func (it *item) isBehind() bool { return it.cause != nil && it.cause.class == chains.ClassBehind }

// firstQueued returns the first item that the producer does not have, or nil.
func (q *queue) firstQueued() *item {
	for _, it := range q.items {
		if it.state == queued {
			return it
		}
	}
	return nil
}

// pop removes the acknowledged items from the front.
func (q *queue) pop() {
	n := 0
	for n < len(q.items) && q.items[n].state == acked {
		n++
	}
	q.items = slices.Delete(q.items, 0, n)
}

// sent records that the producer has the item; alone means that it may be too large.
func (q *queue) sent(it *item, to Partition, alone bool, now time.Time) {
	it.state, it.part, it.sentAt = sent, to, now
	it.attempts++
	q.outstanding++
	q.part, q.key, q.alone = to, append(q.key[:0], it.recordKey()...), alone // the item may return, and be used again, before others
}

// rejected records that the producer returned the item unsent.
func (q *queue) rejected(it *item) {
	it.state, it.attempts = queued, it.attempts-1
	q.outstanding--
	q.state.on(recordRejected) // the events that it waited for were behind the item
}

// returned records that the item came back with an error. Of several errors the most serious
// one counts.
func (q *queue) returned(it *item, err error) {
	it.state = queued
	q.outstanding--
	q.fail(err)
}

// fail records an error of the front.
func (q *queue) fail(err error) {
	if q.err == nil || failure.Classify(q.err) < failure.Classify(err) {
		q.err = err
	}
	q.state.on(recordFailed)
}

// apply changes the queue as the step requires.
func (q *queue) apply(s *step) {
	switch s.do {
	case actPostpone:
		q.state.on(frontGone)
	case actDeadLetter:
		q.firstQueued().cause = s.cause
		q.state.on(writeBegun)
	case actSpill:
		it := q.firstQueued()
		it.cause, it.attempts = s.cause, max(it.attempts, s.attempts)
	case actDelay, actRetryLater: // a delayed lane keeps the error for which it waits
		q.until = s.until
		q.state.on(frontDelayed)
	case actHold:
		q.err, q.until = nil, s.until
		q.state.on(frontHeld)
	case actRetry:
		q.err = nil
		q.state.on(recordsBack)
	case actSuspect:
		q.err = nil
		q.state.on(frontRefused)
	case actGiveUp:
		q.err, q.items[0].cause = nil, s.cause
		q.state.on(recordsBack)
	case actEnd, actEndReplay:
		q.state.on(laneOver)
	}
}

// wake ends the delay until the given time, and reports whether the front waited for that time.
func (q *queue) wake(until time.Time) bool {
	if !q.until.Equal(until) || !q.state.on(delayOver) {
		return false
	}
	q.err = nil
	return true
}

// written ends the writing of dead letters.
func (q *queue) written() {
	if q.err != nil {
		q.state.on(writeBroken)
	} else {
		q.state.on(writeEnded)
	}
}

// acknowledged records that an outstanding item is in its topic, and reports whether it was a
// suspect.
func (q *queue) acknowledged() (suspect bool) {
	q.outstanding--
	return q.state == laneSuspect && q.state.on(frontGone)
}

// deadLetterCause is the reason why an event becomes a dead letter.
type deadLetterCause struct {
	class string
	err   error
	// stalled means that the event waited for a stalled partition: its dead letter is due when
	// a partition resumes.
	stalled bool
}

// replay is the replay of a dead letter, in a lane of its own.
type replay interface {
	// isClaimed reports whether the dead letter is still claimed at a time of the clock of
	// dead letters. It is called in a step.
	isClaimed(now time.Time) bool
	// end receives the result of the replay, once. The driver calls it.
	end(replayEnd)
}
