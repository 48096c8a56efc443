package publish

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Partition names a partition. Its number is -1 while the partitions of the topic are
// not known.
type Partition struct {
	Topic string
	Part  int32
}

// partFlow is a partition with records outstanding, or that events wait for. One that
// acknowledges nothing for AttemptTimeout, while the breaker is closed because others
// do, is stalled: no more is handed to it, so that its events do not fill the producer.
// When that has gone on for as long as all attempts of an event would take, or the
// waiting events fill half of the relay's memory, what waits for it becomes dead
// letters. What the producer has stays there: the broker may have it too.
type partFlow struct {
	open  int   // records with the producer
	bytes int64 // of them
	since time.Time
	// stalled says that the partition acknowledges nothing, and creating that the
	// topic is being looked up or created.
	stalled, creating bool
	// holding says that no more dead letters are made of what waits for the partition,
	// because there are Config.SpillLimit of them.
	holding bool
	waiting map[*lane]struct{}
}

// StalledTopic is a partition that acknowledges nothing while others do.
type StalledTopic struct {
	Topic string
	// Partition is -1 where the topic could not be looked up or created.
	Partition int32
	// since is when it acknowledged something last, or was first sent something.
	Since time.Time
	// Records are with the producer, which keeps them; Aggregates wait behind.
	Records, Aggregates int
	// Holding says that Config.SpillLimit dead letters are open, so that what is
	// for this partition fills the relay's memory, and then reading stops.
	Holding bool
}

// stalled returns the partitions that acknowledge nothing, by name; none while the
// breaker says that no partition does. Called locked.
func (p *Publisher) stalled() []StalledTopic {
	var out []StalledTopic
	if p.breaker.status.State != BreakerClosed {
		return nil
	}
	for key, f := range p.flows {
		if f.stalled {
			out = append(out, StalledTopic{
				Topic: key.Topic, Partition: key.Part, Since: f.since, Records: f.open, Aggregates: len(f.waiting), Holding: f.holding,
			})
		}
	}
	slices.SortFunc(out, func(a, b StalledTopic) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// errStalled calls off the replay of an event that was not tried.
var errStalled = errors.New("its partition is stalled")

// partOf is the partition that the item goes to: that of the records of its lane that
// are outstanding, else by its key. Called locked.
func (p *Publisher) partOf(l *lane, it *item) Partition {
	if l.outstanding > 0 && l.part.Topic == it.topic {
		return l.part
	}
	return Partition{it.topic, p.partitions.part(it.topic, it.event.Key())}
}

// stalls reports whether the lane has to wait for the partition: it is stalled, or the
// producer has as much of it as it may have.
func (p *Publisher) stalls(key Partition, l *lane) bool {
	f := p.flows[key]
	if f == nil || !f.stalled && !p.hasShare(f) {
		return false
	}
	f.waiting[l] = struct{}{}
	return true
}

// hasShare reports whether the producer has as much of the partition as one of those
// that are being written may have of the budget: two shares where there are n of them
// and one to spare. What stalled partitions have, the producer keeps, so the others
// divide the rest: a partition without a leader never takes all of it.
func (p *Publisher) hasShare(f *partFlow) bool {
	parts := max(2, len(p.flows)) + 1
	return f.open >= max(1, 2*(p.cfg.MaxInFlightRecords-p.stuck.open)/parts) ||
		f.open > 0 && f.bytes >= 2*(p.cfg.MaxInFlightBytes-p.stuck.bytes)/int64(parts)
}

// flow notes that the item is on its way to the partition. Called locked.
func (p *Publisher) flow(it *item, key Partition) {
	f := p.flowOf(key)
	it.part = key
	f.open++
	f.bytes += it.bytes
}

// flowOf is the partition's flow, which begins now if there is none. Called locked.
func (p *Publisher) flowOf(key Partition) *partFlow {
	f := p.flows[key]
	if f == nil {
		f = &partFlow{since: time.Now(), waiting: make(map[*lane]struct{})}
		p.flows[key] = f
	}
	return f
}

// ebb notes that a record is back and reports whether it was the last one. Called locked.
func (p *Publisher) ebb(it *item, acked bool) (last bool) {
	f := p.flows[it.part]
	f.open--
	f.bytes -= it.bytes
	if acked {
		p.acked = time.Now()
		f.since = p.acked
	}
	switch {
	case f.stalled && (acked || f.open == 0), !f.stalled && len(f.waiting) > 0 && (f.open == 0 || !p.hasShare(f)):
		p.resumeFlow(f)
	}
	if last = f.open == 0; last && !f.creating {
		delete(p.flows, it.part)
	}
	return last
}

// resumeFlow lets what waits for the partition continue. Called locked.
func (p *Publisher) resumeFlow(f *partFlow) {
	f.stalled, f.holding = false, false
	waiting := f.waiting
	f.waiting = make(map[*lane]struct{})
	if len(waiting) == 0 || p.closed {
		return
	}
	p.wg.Go(func() { // the caller is in the middle of something
		p.mu.Lock()
		defer p.mu.Unlock()
		for l := range waiting {
			p.pump(l)
		}
	})
}

// flowing reports whether records are on their way to the topic. Called locked.
func (p *Publisher) flowing(topic string) bool {
	for key, f := range p.flows {
		if key.Topic == topic && f.open > 0 {
			return true
		}
	}
	return false
}

// pressed reports whether half of the relay's memory is used. Called locked.
func (p *Publisher) pressed() bool {
	return 2*len(p.items) >= p.cfg.MaxInFlightRecords || 2*p.bytes >= p.cfg.MaxInFlightBytes
}

// checkFlows finds partitions that take nothing. Called locked.
func (p *Publisher) checkFlows(now time.Time) {
	p.stuck.open, p.stuck.bytes = 0, 0
	if p.breaker.status.State != BreakerClosed {
		return
	}
	stalled := make(map[Partition]*partFlow)
	for key, f := range p.flows {
		if now.Sub(f.since) >= p.cfg.AttemptTimeout && !f.stalled {
			p.stall(key, f, now)
		}
		if f.stalled {
			stalled[key] = f
			p.stuck.open += f.open
			p.stuck.bytes += f.bytes
		}
	}
	if !p.letters.on() {
		return
	}
	pressed := p.pressed()
	for key, f := range stalled {
		if silent := now.Sub(f.since); pressed || silent >= p.cfg.UsedUpAfter() {
			p.spill(key, f, silent)
		}
	}
}

// stall notes that the partition acknowledges nothing. Called locked.
func (p *Publisher) stall(key Partition, f *partFlow, now time.Time) {
	f.stalled = true
	for l := range p.sending {
		if l.part == key && l.firstQueued() != nil {
			f.waiting[l] = struct{}{}
		}
	}
	p.log.Warn("a partition acknowledges nothing; its events wait", "topic", key.Topic, "partition", key.Part,
		"for", now.Sub(f.since), "records", f.open)
	p.probes[key].pump(p) // who waits for a suspect waits for the partition now
}

// spill makes dead letters of what waits for the partition. Called locked.
func (p *Publisher) spill(key Partition, f *partFlow, silent time.Duration) {
	for l := range f.waiting {
		if p.letters.spilled+p.letters.writing >= p.cfg.SpillLimit {
			if !f.holding {
				f.holding = true
				p.log.Error("a partition acknowledges nothing and no more dead letters are made; its events wait in memory, and reading stops when that is full",
					"topic", key.Topic, "partition", key.Part, "for", silent, "spill_limit", p.cfg.SpillLimit, "aggregates", len(f.waiting))
			}
			return
		}
		f.holding = false
		it := l.firstQueued()
		if it != nil && l.outstanding > 0 && (l.suspect || it.event.Sequence == 0 || l.ended != nil) {
			continue // it waits for the record before it
		}
		delete(f.waiting, l)
		if it == nil || p.gated(l, it) || l.writing || l.failed != nil || l.paused || l.outstanding > 0 && l.part != key || l.outstanding == 0 && it.topic != key.Topic {
			continue
		}
		err := fmt.Errorf("partition %d of topic %s has acknowledged nothing for %s: %w", key.Part, key.Topic, silent.Round(time.Second), errNoAnswer)
		switch {
		case l.ended != nil:
			p.endReplay(l, replayEnd{err: fmt.Errorf("%w: %w", errStalled, err)})
		case l.outstanding > 0:
			it.death = &death{class: ClassBehind, err: fmt.Errorf("an earlier event of the aggregate is with the producer: %w", err)}
			p.write(l)
		default:
			it.attempts = max(it.attempts, len(p.cfg.RetryDelays))
			p.bury(l, usedUp(it, err))
		}
	}
}

// StalledTopics are those with a partition that acknowledges nothing while others do;
// nil-safe.
func (p *Publisher) StalledTopics() []string {
	out := []string{}
	if p == nil {
		return out
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, f := range p.flows {
		if f.stalled {
			out = append(out, key.Topic)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
