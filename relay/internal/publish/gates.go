package publish

// gateRoom is the number of events that may still be published while partitions are
// gated. The zero value has no limit.
type gateRoom struct {
	limited bool
	left    int
}

// limit sets the number of events.
func (g *gateRoom) limit(events int) { g.limited, g.left = true, max(events, 0) }

// spend counts a published event. It reports whether its room in the budget may be
// reused; if not, reading stops when the budget is full. used means that the event was the
// first beyond the limit.
func (g *gateRoom) spend() (reuse, used bool) {
	if !g.limited {
		return true, false
	}
	g.left--
	return g.left >= 0, g.left == -1
}
