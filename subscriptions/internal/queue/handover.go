package queue

import (
	"cmp"
	"slices"
	"time"
)

// handedResults is the number of the last leases whose result a hand-over contains.
const handedResults = 1000

// HandOver is what the next owner of a partition has to know beside position and rows, so that
// the leases live on. Their numbers stay.
type HandOver struct {
	// Last is the number of the last lease.
	Last uint64
	// Leases are sorted by offset.
	Leases []HandedLease
	// Ended are the last actions whose result is durable. Their repetition is confirmed.
	Ended []EndedLease
}

// HandedLease is a lease that has not ended.
type HandedLease struct {
	Offset int64
	Key    []byte
	Lease  uint64
	// Attempts includes this delivery; MaxReceive is that of the record, 0 for none of its own.
	Attempts, MaxReceive int
	// Written is the time of the record, Since the begin of the lease.
	Written, Since, Until time.Time
	Consumer              string
}

// EndedLease is a lease that an action has ended.
type EndedLease struct {
	Lease  uint64
	Action Action
}

// HandOver returns what the next owner has to know. The caller applies nothing to the queue
// afterwards and closes it: Close then reports actions that are pending as Unknown, and the
// leases that they end live on, so that the next owner accepts the same actions.
func (q *Queue) HandOver(now time.Time) HandOver {
	q.Expire(now)
	q.handedOver = true
	h := HandOver{Last: q.leases}
	pending := make(map[uint64]bool)
	for _, m := range q.messages {
		switch {
		case m.phase == Leased:
		case !m.pending(q.resultOf(m.lease)):
			continue
		default:
			pending[m.lease] = true
		}
		h.Leases = append(h.Leases, HandedLease{m.offset, []byte(m.key), m.lease, m.attempts, m.maxReceive, m.written, m.since, m.until, m.consumer})
	}
	slices.SortFunc(h.Leases, func(a, b HandedLease) int { return cmp.Compare(a.Offset, b.Offset) })
	for n := q.leases - min(q.leases, handedResults) + 1; n <= q.leases; n++ {
		if a := q.resultOf(n); a != ended && !pending[n] {
			h.Ended = append(h.Ended, EndedLease{n, a})
		}
	}
	return h
}

// resultOf returns the action that has ended a lease, as far as it is known.
func (q *Queue) resultOf(lease uint64) Action {
	if lease == 0 || lease+remembered <= q.leases {
		return ended
	}
	return q.results[lease%remembered]
}

// pending reports whether the result of the action that has ended the last lease of the message
// is not durable.
func (m *message) pending(a Action) bool {
	switch a {
	case Ack:
		return m.phase == Settled
	case Nack:
		return m.phase == Deferred && (m.want || m.saving)
	case Reject:
		return m.phase == Dead && !m.deadLettering
	default:
		return false
	}
}

// inherit continues the leases of the former owner.
func (q *Queue) inherit(h HandOver, from int64) {
	q.leases = h.Last
	for _, e := range h.Ended {
		q.results[e.Lease%remembered] = e.Action
	}
	for i := range h.Leases {
		q.inheritLease(&h.Leases[i], from)
	}
}

// inheritLease leases a message that the former owner has leased. Without a row its record is
// read later, from the topic; the position is not after it.
func (q *Queue) inheritLease(h *HandedLease, from int64) {
	if _, stored := q.behind[h.Offset]; stored {
		q.recall(h.Offset)
	}
	m := q.messages[h.Offset]
	switch {
	case m != nil:
		q.timers.remove(m)
	case q.written[h.Offset]:
		return
	case h.Offset < from || q.settled.Has(h.Offset):
		q.results[h.Lease%remembered] = Ack // its commit had no answer
		return
	default:
		m = &message{offset: h.Offset, key: string(h.Key), written: h.Written, unread: true}
		q.keep(m)
		q.handed = append(q.handed, m)
		q.enter(m)
	}
	q.become(m, Leased)
	m.active, m.lease, m.attempts, m.maxReceive = true, h.Lease, h.Attempts, h.MaxReceive
	m.since, m.until, m.consumer = h.Since, h.Until, h.Consumer
	if m.lane == nil {
		q.timer(m, m.until)
		return
	}
	l := m.lane
	l.remove(m)
	if l.run = append(l.run, m); len(l.run) == 1 {
		q.timer(m, m.until) // that of a run
		q.keys.take(l.key, q, m.written, false)
	}
}

// arrived returns the inherited message of the next record that is read; nil for none. Those
// before it have no record any more, and end.
func (q *Queue) arrived(offset int64) *message {
	for len(q.handed) > 0 && q.handed[0].offset <= offset && !q.closed {
		m := q.handed[0]
		q.handed = q.handed[1:]
		m.unread = false
		if m.offset == offset {
			return m
		}
		q.vanish(m)
	}
	return nil
}

// vanish ends an inherited message without a record to deliver again.
func (q *Queue) vanish(m *message) {
	switch m.phase {
	case Settled:
		return
	case Leased:
		q.cut(m)
		q.endLease(m, ended)
	default:
	}
	m.since = time.Time{}
	q.settle(m)
}

// attach puts the record that was read into its inherited message.
func (q *Queue) attach(m *message, r Record) {
	if m.phase == Settled {
		q.reach(r.Offset, r.LeaderEpoch)
		return
	}
	q.content(m, r)
	m.leader = r.LeaderEpoch
	if m.want {
		q.save = append(q.save, m)
	}
	q.reach(r.Offset, r.LeaderEpoch) // which continues the lane
	q.window = append(q.window, m)
	if m.lane == nil && m.phase == Waiting {
		q.activate(m)
	}
}
