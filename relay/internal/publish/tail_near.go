package publish

// A tail that stops turns a latency of milliseconds into one of minutes, so the
// relay reports that its memory fills up while events still arrive quickly. It
// reports until the memory is well below that again, not each time that the
// sweep has read a window.
const (
	nearFullPercent  = 80
	nearClearPercent = 60
)

// near notes whether fresh events come near their bound, and returns whether that has changed.
func (m *memory) near() (changed bool) {
	percent := nearFullPercent
	if m.isNear {
		percent = nearClearPercent
	}
	was := m.isNear
	m.isNear = int64(m.freshN)*100 >= int64(m.maxFresh)*int64(percent)
	return m.isNear != was
}

// MemoryFull reports whether the tail has to wait for the sweep. It logs when the
// memory comes near its bound and when it is below again.
func (p *Publisher) MemoryFull() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory.near() {
		if p.memory.isNear {
			p.log.Warn("memory of published events is nearly full; the tail stops at the limit until the sweep catches up: raise relay.max_remembered", "events", p.memory.freshN, "limit", p.memory.maxFresh)
		} else {
			p.log.Info("memory of published events has room again", "events", p.memory.freshN, "limit", p.memory.maxFresh)
		}
	}
	return p.memory.full()
}

// MemoryUse returns how many events wait for the sweep, their bound, and whether
// they are near it.
func (p *Publisher) MemoryUse() (events, limit int, near bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.memory.freshN, p.memory.maxFresh, p.memory.isNear
}
