package queue

import (
	"cmp"
	"slices"
	"time"
)

// handedResults is the number of the last leases whose result a hand-over contains.
const handedResults = 1000

// HandOver is the state that the next owner of a partition needs beside position and rows, so
// that the leases live on. Their numbers stay.
type HandOver struct {
	// Last is the number of the last lease.
	Last uint64
	// Leases are sorted by offset.
	Leases []HandedLease
	// Ended are the last actions whose result is durable. Their repetition is confirmed.
	Ended []EndedLease
}

// HandedLease is a lease that lives on.
type HandedLease struct {
	Offset int64
	Key    []byte
	Lease  uint64
	// Attempts includes this delivery; MaxReceive is that of the record, 0 for none of its own.
	Attempts, MaxReceive int
	// Written is the time of the record, Since the begin of the lease by the clock of the owner.
	Written, Since time.Time
	// Age is the time from the begin to the hand-over, Remaining that from the hand-over to the
	// end: the clock of the next owner may differ. Remaining is not positive for a lease that
	// has ended without a result that is durable.
	Age, Remaining time.Duration
	Consumer       string
	// Alone reports that it is no part of a run: its owner had no order.
	Alone bool `json:",omitempty"`
	// Failed reports that the delivery has failed, which is not durable.
	Failed bool `json:"-"`
}

// EndedLease is a lease that an action has ended.
type EndedLease struct {
	Lease  uint64
	Action Action
}

// HandOver closes the queue, so that nothing changes the state that it returns for the next
// owner. Actions that are pending are reported as Moved, and the leases that they end live on,
// so that the next owner accepts the same actions, and knows of the delivery if none comes.
func (q *Queue) HandOver(now time.Time) HandOver {
	h := HandOver{Last: q.leases}
	if q.closed {
		return h
	}
	live := make(map[uint64]bool)
	for _, m := range q.messages {
		if !q.livesOn(m) {
			continue
		}
		until := m.until
		if l := m.lane; l != nil && slices.Contains(l.run, m) { // an extension is that of the messages which are leased then
			until = later(until, l.run[len(l.run)-1].until)
		}
		live[m.lease] = true
		h.Leases = append(h.Leases, HandedLease{
			Offset: m.offset, Key: []byte(m.key), Lease: m.lease, Attempts: m.attempts, MaxReceive: m.maxReceive, Written: m.written, Since: m.since, Age: now.Sub(m.since), Remaining: until.Sub(now),
			Consumer: m.consumer, Alone: m.lane == nil || m.alone, Failed: m.phase == Deferred || m.phase == Dead,
		})
	}
	slices.SortFunc(h.Leases, func(a, b HandedLease) int { return cmp.Compare(a.Offset, b.Offset) })
	for n := q.leases - min(q.leases, handedResults) + 1; n <= q.leases; n++ {
		if a := q.findResult(n); a != ended && !live[n] {
			h.Ended = append(h.Ended, EndedLease{n, a})
		}
	}
	q.close(Moved, Moved)
	return h
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// findResult returns the action that has ended a lease, as far as it is known.
func (q *Queue) findResult(lease uint64) Action {
	if lease == 0 || lease+remembered <= q.leases {
		return ended
	}
	return q.results[lease%remembered]
}

// remember keeps the action that has ended a lease, if it is one of the last ones.
func (q *Queue) remember(lease uint64, how Action) {
	if lease+remembered > q.leases {
		q.results[lease%remembered] = how
	}
}

// livesOn reports whether the next owner has to know the last lease of the message: it has not
// ended, or the result of the action that has ended it is not durable.
func (q *Queue) livesOn(m *message) bool {
	if m.lease == 0 {
		return false
	}
	switch m.phase {
	case Leased:
		return true
	case Settled:
		return q.findResult(m.lease) == Ack
	case Deferred: // without its row the delivery would not count
		return (m.want || m.saving) && q.findResult(m.lease) != Postpone
	case Dead:
		return !m.deadLettering
	default:
		return false
	}
}

// inherit continues the leases of the former owner, from the time now on.
func (q *Queue) inherit(h HandOver, from int64, now time.Time) {
	q.leases = h.Last
	for _, e := range h.Ended {
		q.remember(e.Lease, e.Action)
	}
	taken := make(map[string]bool) // keys, by whether this queue has them
	for i := range h.Leases {
		q.inheritLease(&h.Leases[i], from, now, taken)
	}
}

// inheritLease leases a message that the former owner has leased. Without a row its record is
// read later, from the topic; the position is not after it. Durable state decides over the
// lease, and so does another partition that has the key: the message then waits for its turn.
func (q *Queue) inheritLease(h *HandedLease, from int64, now time.Time, taken map[string]bool) {
	m := q.messages[h.Offset]
	_, behind := q.behind[h.Offset]
	switch {
	case m != nil && m.phase == Settled, m == nil && q.isWritten(h.Offset, h.Written):
		return // its dead letter is written
	case m != nil && m.deadLettering: // its row has been stored without an answer
		if m.rejected {
			q.remember(h.Lease, Reject)
		} else {
			q.remember(h.Lease, Nack)
		}
		return
	case m == nil && !behind && (h.Offset < from || q.settled.Has(h.Offset)):
		q.remember(h.Lease, Ack) // its commit had no answer
		return
	}
	if key := string(h.Key); q.cfg.Ordered && key != "" {
		if _, known := taken[key]; !known {
			if taken[key] = q.keys.take(key, q, h.Written, false); !taken[key] {
				q.keys.leave(key, q) // it is taken when the message can be delivered
			}
		}
		if !taken[key] {
			return
		}
	}
	if behind {
		m = q.recall(h.Offset)
	}
	if m != nil {
		q.timers.remove(m)
	} else {
		m = &message{offset: h.Offset, key: string(h.Key), written: h.Written, unread: true}
		q.keep(m)
		q.handed = append(q.handed, m)
		q.enter(m)
	}
	q.become(m, Leased)
	m.active, m.lease, m.attempts, m.maxReceive, m.consumer = true, h.Lease, h.Attempts, h.MaxReceive, h.Consumer
	m.since, m.until = h.times(now, cmp.Or(q.cfg.MaxExtension, MaxDelivery))
	if m.lane == nil {
		q.timer(m, m.until)
		return
	}
	l := m.lane
	l.remove(m)
	if h.Alone {
		m.alone = true
		l.alone++
		q.timer(m, m.until)
		return
	}
	if l.run = append(l.run, m); len(l.run) == 1 {
		q.timer(m, m.until) // that of a run
	}
}

// times returns begin and end of the lease by the clock of the next owner. The remaining time
// begins again: neither a clock that differs nor a time without an owner ends a lease early. The
// earlier begin counts, so that a lease ends in MaxDelivery after it, however often it is handed
// over, and by its extension limit unless that has become shorter.
func (h *HandedLease) times(now time.Time, extension time.Duration) (since, until time.Time) {
	if since = now.Add(-h.Age); h.Since.Before(since) {
		since = h.Since
	}
	limit := since.Add(min(max(extension, h.Age+h.Remaining), MaxDelivery))
	if until = now.Add(h.Remaining); until.After(limit) {
		until = limit
	}
	return since, until
}

// takeInherited returns the inherited message of the next record that is read; nil for none. Those
// before it have no record any more, and end.
func (q *Queue) takeInherited(offset int64) *message {
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
