package publish

import "sync/atomic"

// gateRoom is the number of events that may still be published while partitions are
// gated. The zero value has no limit. It is safe for concurrent use.
type gateRoom struct {
	limited atomic.Bool
	left    atomic.Int64
}

// limit sets the number of events.
func (g *gateRoom) limit(events int) {
	g.left.Store(int64(max(events, 0)))
	g.limited.Store(true)
}

// spend counts a published event. It reports whether its room in the budget may be
// reused; if not, reading stops when the budget is full. used means that the event was the
// first beyond the limit.
func (g *gateRoom) spend() (reuse, used bool) {
	if !g.limited.Load() {
		return true, false
	}
	left := g.left.Add(-1)
	return left >= 0, left == -1
}
