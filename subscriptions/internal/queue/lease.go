package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
)

// Probe leases one message, as Lease does, to a consumer that fails: the oldest one that was never
// leased, or else the one whose last lease is the oldest. So a message that is the cause of the
// failures does not hide the others.
func (q *Queue) Probe(dst []Delivery, now, until time.Time, consumer string) []Delivery {
	if !q.CanLease() {
		return dst
	}
	m, end := q.ready.top(), q.offset()+position.Window
	for _, o := range q.ready.items {
		if o.offset < end && (o.lease < m.lease || o.lease == m.lease && o.offset < m.offset) {
			m = o
		}
	}
	return append(dst, q.leaseFirst(m, now, until, consumer))
}

// CanLease reports whether Lease would return a message.
func (q *Queue) CanLease() bool {
	m := q.ready.top()
	return m != nil && !q.closed && m.offset < q.offset()+position.Window
}

// Lease leases up to n messages to a consumer from now until the given time, oldest first,
// and appends them to dst. Up to run messages of a key follow each other; they are a run.
func (q *Queue) Lease(dst []Delivery, n, run int, now, until time.Time, consumer string) []Delivery {
	dst = slices.Grow(dst, max(0, min(n, len(q.ready.items))))
	if n > 0 {
		q.run = min(n, run)
	}
	for n > 0 && q.CanLease() {
		m := q.ready.top()
		k := 1
		dst = append(dst, q.leaseFirst(m, now, until, consumer))
		for follows := q.followers(m, min(n, run)); k < min(n, run) && follows(); k++ {
			dst = append(dst, q.lease(m.lane.take(0), now, until, consumer))
		}
		n -= k
		if m.lane != nil {
			q.prefetch(m.lane) // the next run
		}
	}
	return dst
}

// leaseFirst leases a message that is ready, the first one of a run.
func (q *Queue) leaseFirst(m *message, now, until time.Time, consumer string) Delivery {
	q.ready.remove(m)
	q.timer(m, until) // that of a run
	return q.lease(m, now, until, consumer)
}

func (q *Queue) lease(m *message, now, until time.Time, consumer string) Delivery {
	if m.row && m.loading {
		q.loaded--
		m.loading = false
	}
	q.leases++
	q.results[q.leases%remembered] = ended
	q.become(m, Leased)
	m.active, m.lease, m.since, m.until, m.consumer = true, q.leases, now, until, consumer
	m.attempts++
	return Delivery{Record: m.record, Offset: m.offset, Attempt: m.attempts, MaxReceive: q.maxReceive(m), Lease: m.lease, Until: until}
}

// followers reports, before each further message of a run of up to most, whether it can be
// delivered now and is not younger than a message of the key in another partition.
func (q *Queue) followers(m *message, most int) func() bool {
	l := m.lane
	if most < 2 || l == nil || q.keys.isBlocked(l.key) {
		return func() bool { return false }
	}
	before := q.keys.oldest(l.key)
	return func() bool {
		if len(l.rest) == 0 {
			return false
		}
		m := l.rest[0]
		return (len(l.stored) == 0 || m.offset < l.stored[0]) && m.phase == Waiting && m.record != nil && !m.rejected && !m.deadLettering && m.offset < q.offset()+position.Window && (before.IsZero() || !m.written.After(before))
	}
}

// LeasedAt returns the time at which a lease began; zero if it has ended.
func (q *Queue) LeasedAt(offset int64, lease uint64) time.Time {
	if m := q.messages[offset]; m != nil && m.lease == lease && m.phase == Leased && !q.closed {
		return m.since
	}
	return time.Time{}
}

// Next returns the time at which Expire has something to do; zero for none.
func (q *Queue) Next() time.Time {
	if m := q.timers.top(); m != nil && !q.closed {
		return m.due
	}
	return time.Time{}
}

// Expire ends the leases and delays that are over, and returns the number of leases that
// expired.
func (q *Queue) Expire(now time.Time) (expired int) {
	for m := q.timers.top(); m != nil && !q.closed && !m.due.After(now); m = q.timers.top() {
		q.timers.remove(m)
		if m.phase == Leased {
			expired += q.cut(m)
			q.fail(m, now, 0, "the lease expired")
			q.resume(m)
			continue
		}
		q.become(m, Waiting)
		q.activate(m)
	}
	return expired
}

// endLease ends the lease of a message.
func (q *Queue) endLease(m *message, how Action) {
	q.timers.remove(m)
	q.remember(m.lease, how)
}

// cut ends the run before a leased message, whose lease ends: the later ones of the run are
// returned, and their deliveries do not count. It returns the number of leases that end.
func (q *Queue) cut(m *message) int {
	l := m.lane
	switch {
	case l == nil:
		return 1
	case m.alone:
		l.remove(m)
		l.insert(m)
		m.active = false
		return 1
	}
	i := slices.Index(l.run, m)
	n := len(l.run) - i
	for _, o := range l.run[i+1:] {
		q.endLease(o, ended)
		o.attempts--
		o.active = false
		q.become(o, Waiting)
	}
	m.active = false
	l.cut(i)
	return n
}

// resume continues the lane of a message whose lease has ended; the key stays with it.
func (q *Queue) resume(m *message) {
	if m.lane != nil {
		q.advance(m.lane, false)
	} else if m.phase == Waiting {
		q.activate(m)
	}
}

// fail ends a lease as a failed delivery.
func (q *Queue) fail(m *message, now time.Time, delay time.Duration, reason string) {
	m.reason = reason
	if m.first.IsZero() {
		m.first = now
	}
	if m.attempts >= q.maxReceive(m) {
		q.deadLetter(m)
		return
	}
	m.reason, _ = CutDetails(reason)
	if delay <= 0 {
		delay = q.cfg.Backoff(m.attempts)
	}
	q.deferUntil(m, now, now.Add(delay))
}

func (q *Queue) deferUntil(m *message, now, next time.Time) {
	if m.first.IsZero() {
		m.first = now
	}
	q.become(m, Deferred)
	m.next = next
	q.requestSave(m)
}

// deadLetter gives a message up, once it is the first of its key: an earlier message of its
// run that comes again must not find the key blocked.
func (q *Queue) deadLetter(m *message) {
	q.become(m, Dead)
	if m.active {
		q.giveUp(m)
	}
}

// giveUp writes a dead letter. A message that was delivered is stored as dead-lettering before,
// so that no owner delivers it again after a crash in between.
func (q *Queue) giveUp(m *message) {
	if m.attempts > 0 && !m.deadLettering {
		q.requestSave(m)
		return
	}
	q.bury(m)
}

// bury requests to write a dead letter, once the record is in memory.
func (q *Queue) bury(m *message) {
	if m.record != nil {
		q.dead = append(q.dead, m)
		return
	}
	q.become(m, Waiting)
	if m.active {
		q.activate(m)
	}
}

// find returns the message of a lease. If the lease has ended, repeated reports whether
// the same action ended it; m is nil then, unless the result is pending.
func (q *Queue) find(offset int64, lease uint64, a Action, now time.Time) (m *message, repeated bool) {
	q.Expire(now)
	if q.closed {
		return nil, false
	}
	m = q.messages[offset]
	switch {
	case m != nil && m.lease == lease && m.phase == Leased:
		return m, false
	case lease > q.leases || lease+remembered <= q.leases:
		return nil, false
	case a == ended || q.results[lease%remembered] != a:
		return nil, false
	case m != nil && m.lease == lease && (m.phase == Settled || m.phase == Dead || m.phase == Deferred && (m.want || m.saving)):
		return m, true
	}
	return nil, true
}

// Settle applies an action to a lease and returns the outcome; if that is Pending, the
// waiter receives it. Nack and Reject use delay and reason, which may have details. Repeating the action
// that ended one of the last leases has the same outcome again.
func (q *Queue) Settle(offset int64, lease uint64, a Action, now time.Time, delay time.Duration, reason string, w Waiter) Outcome {
	m, repeated := q.find(offset, lease, a, now)
	switch {
	case m == nil && repeated:
		return OK
	case m == nil:
		return Expired
	case repeated:
		m.wait(w)
		return Pending
	}
	if l := m.lane; a == Ack && l != nil && !m.alone {
		if l.run[l.first] != m {
			return OutOfOrder
		}
		if l.first++; l.first < len(l.run) {
			q.timer(l.run[l.first], l.run[l.first].until)
		}
	} else if a != Ack {
		q.cut(m)
	}
	q.endLease(m, a)
	switch a {
	case Release:
		m.attempts--
		q.become(m, Waiting)
		q.resume(m)
		return OK
	case Nack:
		m.wait(w)
		q.fail(m, now, delay, reason)
		q.resume(m)
	case Postpone:
		m.wait(w)
		m.attempts--
		m.reason = reason
		q.deferUntil(m, now, now.Add(delay))
		q.resume(m)
	case Reject:
		m.wait(w)
		m.reason, m.rejected = reason, true
		if m.first.IsZero() {
			m.first = now
		}
		q.deadLetter(m)
		q.resume(m)
	default:
		m.wait(w)
		m.since = now
		q.settle(m)
	}
	return Pending
}

// MaxDelivery bounds the time from a delivery to the end of its lease, whatever its extensions:
// a consumer that hangs does not block its key for ever.
const MaxDelivery = 12 * time.Hour

// limit returns the time to which a lease may be extended. One that ends later, by the end that it
// was given, keeps that.
func (q *Queue) limit(since, until time.Time) time.Time {
	return later(since.Add(cmp.Or(q.cfg.MaxExtension, MaxDelivery)), until)
}

// Extend sets the end of a lease, and of the leases of its run, at most Config.MaxExtension after
// the delivery. It returns the end, zero if the lease has ended.
func (q *Queue) Extend(offset int64, lease uint64, now, until time.Time) time.Time {
	m, _ := q.find(offset, lease, ended, now)
	if m == nil {
		return time.Time{}
	}
	if limit := q.limit(m.since, m.until); until.After(limit) {
		until = limit
	}
	switch {
	case m.lane == nil || m.alone:
		m.until = until
		q.timer(m, until)
	case !m.until.Equal(until):
		l := m.lane
		for _, o := range l.run[l.first:] {
			o.until = until
		}
		q.timer(l.run[l.first], until)
	}
	return until
}
