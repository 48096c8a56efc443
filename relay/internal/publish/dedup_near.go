package publish

// A stopped tail reader raises the latency from milliseconds to minutes, so the relay
// reports a nearly full dedup index while events are still published quickly. The
// report ends at a lower percentage than it begins, so that it does not change with
// every window that the sweep reads.
const (
	nearFullPercent  = 80
	nearClearPercent = 60
)

// near updates isNear and reports whether it changed.
func (m *memory) near() (changed bool) {
	percent := nearFullPercent
	if m.isNear {
		percent = nearClearPercent
	}
	was := m.isNear
	m.isNear = int64(m.freshN)*100 >= int64(m.maxFresh)*int64(percent)
	return m.isNear != was
}

// MemoryFull reports whether the tail reader has to wait for the sweep reader. It logs
// when the dedup index becomes nearly full and when it has room again.
func (p *Publisher) MemoryFull() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory.near() {
		if p.memory.isNear {
			p.log.Warn("dedup index is nearly full; at the limit the tail reader waits for the sweep reader: raise relay.max_remembered", "events", p.memory.freshN, "limit", p.memory.maxFresh)
		} else {
			p.log.Info("dedup index has room again", "events", p.memory.freshN, "limit", p.memory.maxFresh)
		}
	}
	return p.memory.full()
}

// MemoryUse returns the number of events that wait for the sweep reader, their limit,
// and whether the number is near the limit.
func (p *Publisher) MemoryUse() (events, limit int, near bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.memory.freshN, p.memory.maxFresh, p.memory.isNear
}
