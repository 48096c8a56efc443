package dedup

import "sync/atomic"

// A stopped tail reader raises the latency from milliseconds to minutes, so the relay
// reports a nearly full dedup index while events are still published quickly. The
// report ends at a lower percentage than it begins, so that it does not change with
// every window that the sweep reads.
const (
	nearFullPercent  = 80
	nearClearPercent = 60
)

// Near is whether a number of events is near its limit. It is safe for concurrent use.
type Near struct{ is atomic.Bool }

// Is returns the result of the last Update.
func (n *Near) Is() bool { return n.is.Load() }

// Update reports whether the number of events is near their limit, and whether that
// changed since the last call.
func (n *Near) Update(events, limit int) (near, changed bool) {
	percent := nearFullPercent
	was := n.is.Load()
	if was {
		percent = nearClearPercent
	}
	near = int64(events)*100 >= int64(limit)*int64(percent)
	return near, near != was && n.is.CompareAndSwap(was, near)
}
