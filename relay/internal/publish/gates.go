package publish

// Limit sets the number of events that may be published while gates are closed.
// Checkpoints do not pass the waiting events, so the next start has to remember all
// events that were published since.
func (p *Publisher) Limit(events int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gateRoom = new(int)
	*p.gateRoom = max(events, 0)
}

// spendGateRoom counts a published event. It reports whether its room in the budget may
// be reused; if not, reading stops when the budget is full. Called locked.
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

// gated reports whether the item belongs to a partition that was not read back. The lane
// then waits until this run of the relay ends. Called locked.
func (p *Publisher) gated(l *lane, it *item) bool {
	if it.topicErr != nil || l.outstanding > 0 && l.part.Topic == it.topic || !p.producer.Partitions.Gated(it.topic, it.event.Key()) {
		return false
	}
	l.gated = true
	return true
}

// Gate prevents publishing to a partition until the publisher is closed. partitions is
// the number of partitions of its topic. Gate must be called before anything is
// published.
func (p *Publisher) Gate(key Partition, partitions int) {
	p.producer.Partitions.Gate(key.Topic, key.Part, partitions)
}
