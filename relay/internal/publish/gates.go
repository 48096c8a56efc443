package publish

// Limit bounds how many events go out before the pass ends. The checkpoints stay before
// the events that wait, so the next start has to remember all that went out since.
func (p *Publisher) Limit(events int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gateRoom = new(int)
	*p.gateRoom = max(events, 0)
}

// spendGateRoom notes that an event went out. It reports whether another one may take its
// place in the budget: if not, reading stops when the budget is used up. Called locked.
func (p *Publisher) spendGateRoom() bool {
	if p.gateRoom == nil {
		return true
	}
	if *p.gateRoom--; *p.gateRoom == -1 {
		p.log.Error("events of all partitions wait until the unread ones can be read back: a start could not remember more published events",
			"max_remembered_events", p.cfg.MaxRememberedEvents)
	}
	return *p.gateRoom >= 0
}

// gated reports whether the item may not be sent, because it belongs to a partition that
// was not read back. Nothing moves its lane then: the pass ends first. Called locked.
func (p *Publisher) gated(l *lane, it *item) bool {
	if it.topicErr != nil || l.outstanding > 0 && l.part.Topic == it.topic || !p.partitions.gated(it.topic, it.event.Key()) {
		return false
	}
	l.gated = true
	return true
}

// Gate closes a partition of a topic with that many partitions, until the publisher is
// closed. It is called before anything is published.
func (p *Publisher) Gate(key Partition, partitions int) { p.partitions.gate(key, partitions) }
