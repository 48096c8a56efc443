package access

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
)

// limits is a bounded number of limiters by name.
type limits struct {
	rate  rate.Limit
	burst int
	clock clocks.Clock

	mu sync.Mutex
	by map[string]*rate.Limiter
}

// maxLimits bounds the memory of limiters for many addresses or principals.
const maxLimits = 10_000

func newLimits(r rate.Limit, burst int, clock clocks.Clock) *limits {
	return &limits{rate: r, burst: burst, clock: clock, by: make(map[string]*rate.Limiter)}
}

// take takes one token of name; if there is none, wait is the time until the next.
func (l *limits) take(name string) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	r := l.limiter(name, now).ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait, false
	}
	return 0, true
}

// limiter returns the limiter of name. The lock must be held.
func (l *limits) limiter(name string, now time.Time) *rate.Limiter {
	lim := l.by[name]
	if lim != nil {
		return lim
	}
	if len(l.by) >= maxLimits {
		for n, old := range l.by { // full limiters equal new ones
			if old.TokensAt(now) >= float64(l.burst) {
				delete(l.by, n)
			}
		}
	}
	if len(l.by) >= maxLimits {
		for n := range l.by { // none is full: remove any
			delete(l.by, n)
			break
		}
	}
	lim = rate.NewLimiter(l.rate, l.burst)
	l.by[name] = lim
	return lim
}
