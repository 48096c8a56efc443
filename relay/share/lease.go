package share

import (
	"sync"
	"sync/atomic"
	"time"
)

// lease is the time up to which the broker cannot have reassigned this member's shards.
// It is safe for concurrent use; over takes no lock.
//
// A coordinator removes a member in two cases. It has received no heartbeat for the
// session timeout, counted from the receipt of the last one, which is after its sending.
// Or a rebalance has lasted for the rebalance timeout without the member joining it. The
// answer to a heartbeat reports a rebalance, so it began after the sending of the last
// heartbeat whose answer did not. A generation that has not had such an answer is not renewed
// by one that reports a rebalance: its coordinator may count from when the member joined.
type lease struct {
	session, rebalance, margin time.Duration

	end atomic.Pointer[time.Time] // nil before the first answer

	mu     sync.Mutex
	steady time.Time // sending of the last heartbeat that found no rebalance
}

// renew processes the answer to the heartbeat sent at sent. Only a rebalance shortens the
// lease.
func (l *lease) renew(sent time.Time, rebalancing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := sent.Add(l.session)
	if rebalancing {
		if l.steady.IsZero() {
			return // start of the rebalance unknown
		}
		if last := l.steady.Add(l.rebalance); last.Before(end) {
			end = last
		}
	} else {
		// A rebalance may have begun right after, and this member may not learn of it.
		end = sent.Add(min(l.session, l.rebalance))
		if l.steady.Before(sent) {
			l.steady = sent
		}
	}
	end = end.Add(-l.margin)
	if before := l.end.Load(); !rebalancing && before != nil && end.Before(*before) {
		return
	}
	l.end.Store(&end)
}

// drop ends the lease: the member is no longer in the group.
func (l *lease) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steady = time.Time{}
	l.end.Store(nil)
}

// over reports whether the lease has ended.
func (l *lease) over() bool {
	end := l.end.Load()
	return end == nil || past(time.Now(), *end)
}

// left returns the remaining duration of the lease, 0 if it is over.
func (l *lease) left() time.Duration {
	end := l.end.Load()
	if end == nil || past(time.Now(), *end) {
		return 0
	}
	return time.Until(*end)
}

// past compares by the monotonic clock and by the wall clock and uses the later one: the
// first stops while the machine sleeps, the second may be changed.
func past(now, end time.Time) bool {
	return noneLeft(end.Sub(now), end.Round(0).Sub(now.Round(0)))
}

// noneLeft reports whether no time is left by one of the clocks.
func noneLeft(monotonic, wall time.Duration) bool { return monotonic <= 0 || wall <= 0 }
