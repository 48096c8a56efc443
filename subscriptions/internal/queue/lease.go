package queue

import (
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
)

// CanLease reports whether Lease would return a message.
func (q *Queue) CanLease() bool {
	m := q.ready.top()
	return m != nil && !q.closed && m.offset < q.offset()+position.Window
}

// Lease leases up to n messages to a consumer from now until the given time, oldest first,
// and appends them to dst.
func (q *Queue) Lease(dst []Delivery, n int, now, until time.Time, consumer string) []Delivery {
	dst = slices.Grow(dst, max(0, min(n, len(q.ready.items))))
	for ; n > 0 && q.CanLease(); n-- {
		m := q.ready.top()
		q.ready.remove(m)
		if m.row && m.phase == Waiting && m.loading {
			q.loaded--
			m.loading = false
		}
		q.leases++
		q.results[q.leases%remembered] = ended
		q.become(m, Leased)
		m.lease, m.since, m.until, m.consumer = q.leases, now, until, consumer
		m.attempts++
		q.timer(m, until)
		dst = append(dst, Delivery{Record: m.record, Offset: m.offset, Attempt: m.attempts, MaxReceive: q.maxReceive(m), Lease: m.lease, Until: until})
	}
	return dst
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
			expired++
			q.fail(m, now, 0, "the lease expired")
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
	if m.lease+remembered > q.leases {
		q.results[m.lease%remembered] = how
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
	if delay <= 0 {
		delay = q.cfg.Backoff(m.attempts)
	}
	q.become(m, Deferred)
	m.next = now.Add(delay)
	q.requestSave(m)
}

// deadLetter gives a message up. One that was delivered is stored as dead-lettering before its dead
// letter is written, so that no owner delivers it again after a crash in between.
func (q *Queue) deadLetter(m *message) {
	q.become(m, Dead)
	if m.attempts > 0 && !m.deadLettering {
		q.requestSave(m)
		return
	}
	q.dead = append(q.dead, m)
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
// waiter receives it. Nack and Reject use delay and reason. Repeating the action
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
	q.endLease(m, a)
	switch a {
	case Release:
		m.attempts--
		q.become(m, Waiting)
		q.activate(m)
		return OK
	case Nack:
		m.wait(w)
		q.fail(m, now, delay, reason)
	case Reject:
		m.wait(w)
		m.reason, m.rejected = reason, true
		if m.first.IsZero() {
			m.first = now
		}
		q.deadLetter(m)
	default:
		m.wait(w)
		m.since = now
		q.settle(m)
	}
	return Pending
}

// Extend sets the end of a lease.
func (q *Queue) Extend(offset int64, lease uint64, now, until time.Time) bool {
	m, _ := q.find(offset, lease, ended, now)
	if m == nil {
		return false
	}
	m.until = until
	q.timer(m, until)
	return true
}
