package share

import (
	"sync"
	"sync/atomic"
	"time"
)

// lease is until when the broker cannot have given this member's shards to
// another. It is safe for concurrent use; over takes no lock.
//
// A coordinator forgets a member in two cases. It heard nothing of it for the
// session timeout, counted from when a heartbeat reached it, which is after the
// heartbeat was sent. Or a rebalance has been going on for the rebalance timeout
// without the member joining it; that it began is told by the answer to a
// heartbeat, so it began after the last one was sent whose answer did not say so.
type lease struct {
	session, rebalance, margin time.Duration

	end atomic.Pointer[time.Time] // nil before the first answer

	mu     sync.Mutex
	steady time.Time // when the last heartbeat was sent that found no rebalance
}

// renew takes an answer to the heartbeat that was sent then. A lease never becomes
// shorter, but by a rebalance.
func (l *lease) renew(sent time.Time, rebalancing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := sent.Add(l.session)
	if rebalancing {
		if l.steady.IsZero() {
			return // nobody knows since when
		}
		if last := l.steady.Add(l.rebalance); last.Before(end) {
			end = last
		}
	} else {
		// One may have begun right after, and this member may never hear of it.
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

// over says that the lease has ended.
func (l *lease) over() bool {
	end := l.end.Load()
	return end == nil || past(time.Now(), *end)
}

// left is how long the lease lasts, 0 if it is over.
func (l *lease) left() time.Duration {
	end := l.end.Load()
	if end == nil || past(time.Now(), *end) {
		return 0
	}
	return time.Until(*end)
}

// past compares by the monotonic clock and by the wall clock, and believes the one
// that is further: the first stands still in a machine that sleeps, the second may
// be set.
func past(now, end time.Time) bool {
	return noneLeft(end.Sub(now), end.Round(0).Sub(now.Round(0)))
}

// noneLeft says whether there is no time left by one of the clocks.
func noneLeft(monotonic, wall time.Duration) bool { return monotonic <= 0 || wall <= 0 }
