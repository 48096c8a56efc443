package dedup

// A stopped tail reader raises the latency from milliseconds to minutes, so the relay
// reports a nearly full dedup index while events are still published quickly. The
// report ends at a lower percentage than it begins, so that it does not change with
// every window that the sweep reads.
const (
	nearFullPercent  = 80
	nearClearPercent = 60
)

// Near reports whether the events that the sweep reader has not read are near their limit,
// and whether that changed since the last call.
func (x *Index) Near() (near, changed bool) {
	percent := nearFullPercent
	if x.isNear {
		percent = nearClearPercent
	}
	was := x.isNear
	x.isNear = int64(x.freshN)*100 >= int64(x.maxFresh)*int64(percent)
	return x.isNear, x.isNear != was
}

// Use returns the number of events that the sweep reader has not read, their limit, and the
// last result of Near.
func (x *Index) Use() (events, limit int, near bool) { return x.freshN, x.maxFresh, x.isNear }
