package publish

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// Partition identifies a partition. Part is -1 while the number of partitions of the
// topic is unknown.
type Partition struct {
	Topic string
	Part  int32
}

// partFlow is the state of a partition with outstanding records or waiting events. A
// partition is stalled if it acknowledges nothing for AttemptTimeout while the breaker is
// closed because others do. The relay then sends nothing more to it, so that its events
// do not fill the producer. The waiting events become dead letters after
// UsedUpAfter, or when half of the in-flight budget is used. Records that the
// producer has stay there: the broker may have written them.
type partFlow struct {
	open  int       // records with the producer
	bytes int64     // size of these records
	since time.Time // as StalledTopic.Since
	// stalled: the partition acknowledges nothing. creating: the topic is being looked
	// up or created.
	stalled, creating bool
	// holding means that the waiting events do not become dead letters, because the
	// number of spilled ones has reached Config.SpillLimit.
	holding bool
	waiting map[*lane]struct{}
}

// StalledTopic describes a partition that acknowledges nothing while others do.
type StalledTopic struct {
	Topic string
	// Partition is -1 if the topic could not be looked up or created.
	Partition int32
	// Since is the time of its last acknowledgement, or of its first record without one.
	Since time.Time
	// Records is the number of records that the producer keeps, Aggregates the number
	// of aggregates that wait.
	Records, Aggregates int
	// Holding means that the number of spilled dead letters has reached
	// Config.SpillLimit. Events for this partition then fill the in-flight budget, and
	// reading stops when it is full.
	Holding bool
}

// stalled returns the stalled partitions, sorted by topic and partition, or nil unless
// the breaker is closed. Called locked.
func (p *Publisher) stalled() []StalledTopic {
	var out []StalledTopic
	if p.calls.State() != BreakerClosed {
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

// errStalled ends a replay before its event was sent.
var errStalled = errors.New("its partition is stalled")

// partOf returns the partition of the item: that of the outstanding records of its lane,
// else the one that its key determines. Called locked.
func (p *Publisher) partOf(l *lane, it *item) Partition {
	if l.outstanding > 0 && l.part.Topic == it.topic {
		return l.part
	}
	return Partition{it.topic, p.producer.Partitions.Part(it.topic, it.event.Key())}
}

// stalls reports whether the lane has to wait because the partition is stalled or the
// producer has the partition's full share, and then adds it to the waiting lanes.
func (p *Publisher) stalls(key Partition, l *lane) bool {
	f := p.flows[key]
	if f == nil || !f.stalled && !p.hasShare(f) {
		return false
	}
	f.waiting[l] = struct{}{}
	return true
}

// hasShare reports whether the partition uses its full share of the in-flight budget. The
// share is 2/(n+1), where n is the number of partitions with flows or 2, whichever is
// larger. Records of stalled partitions stay with the producer, so the share is taken of
// the rest: a partition without a leader never uses the whole budget.
func (p *Publisher) hasShare(f *partFlow) bool {
	parts := max(2, len(p.flows)) + 1
	return f.open >= max(1, 2*(p.cfg.MaxInFlightRecords-p.stuck.open)/parts) ||
		f.open > 0 && f.bytes >= 2*(p.cfg.MaxInFlightBytes-p.stuck.bytes)/int64(parts)
}

// flow counts the item as outstanding on the partition. Called locked.
func (p *Publisher) flow(it *item, key Partition) {
	f := p.flowOf(key)
	it.part = key
	f.open++
	f.bytes += it.bytes
}

// flowOf returns the partition's flow and creates it if there is none. Called locked.
func (p *Publisher) flowOf(key Partition) *partFlow {
	f := p.flows[key]
	if f == nil {
		f = &partFlow{since: time.Now(), waiting: make(map[*lane]struct{})}
		p.flows[key] = f
	}
	return f
}

// ebb removes a returned record from its flow and reports whether it was the last
// outstanding one. Called locked.
func (p *Publisher) ebb(it *item, acked bool) (last bool) {
	f := p.flows[it.part]
	f.open--
	f.bytes -= it.bytes
	if acked {
		p.calls.Acknowledged()
		f.since = time.Now()
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

// resumeFlow resumes the lanes that wait for the partition. Called locked.
func (p *Publisher) resumeFlow(f *partFlow) {
	f.stalled, f.holding = false, false
	waiting := f.waiting
	f.waiting = make(map[*lane]struct{})
	if len(waiting) == 0 || p.closed {
		return
	}
	p.wg.Go(func() { // the caller may be changing a lane
		p.mu.Lock()
		defer p.mu.Unlock()
		for l := range waiting {
			p.pump(l)
		}
	})
}

// hasOutstanding reports whether records of the topic are outstanding.
func (p *Publisher) hasOutstanding(topic string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, f := range p.flows {
		if key.Topic == topic && f.open > 0 {
			return true
		}
	}
	return false
}

// busyPartitions returns the number of partitions with outstanding records. Called locked.
func (p *Publisher) busyPartitions() (n int) {
	for _, f := range p.flows {
		if f.open > 0 {
			n++
		}
	}
	return n
}

// pressed reports whether half of the in-flight budget is used. Called locked.
func (p *Publisher) pressed() bool {
	return 2*len(p.items) >= p.cfg.MaxInFlightRecords || 2*p.bytes >= p.cfg.MaxInFlightBytes
}

// checkFlows detects stalled partitions and spills their waiting events. Called locked.
func (p *Publisher) checkFlows(now time.Time) {
	p.stuck.open, p.stuck.bytes = 0, 0
	if p.calls.State() != BreakerClosed {
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
		if silent := now.Sub(f.since); pressed || silent >= UsedUpAfter(p.cfg.RetryDelays, p.cfg.AttemptTimeout) {
			p.spill(key, f, silent)
		}
	}
}

// stall marks the partition as stalled. Called locked.
func (p *Publisher) stall(key Partition, f *partFlow, now time.Time) {
	f.stalled = true
	for l := range p.sending {
		if l.part == key && l.firstQueued() != nil {
			f.waiting[l] = struct{}{}
		}
	}
	p.log.Warn("a partition acknowledges nothing; its events wait", "topic", key.Topic, "partition", key.Part,
		"for", now.Sub(f.since), "records", f.open)
	p.probes[key].pump(p) // lanes that wait for a suspect wait for the partition now
}

// spill writes dead letters for the events that wait for the partition, up to
// Config.SpillLimit. Called locked.
func (p *Publisher) spill(key Partition, f *partFlow, silent time.Duration) {
	for l := range f.waiting {
		if p.letters.Spilled()+p.letters.writing >= p.cfg.SpillLimit {
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
			continue // it waits for the previous record
		}
		delete(f.waiting, l)
		if it == nil || p.gated(l, it) || l.writing || l.failed != nil || l.paused || l.outstanding > 0 && l.part != key || l.outstanding == 0 && it.topic != key.Topic {
			continue
		}
		err := fmt.Errorf("partition %d of topic %s has acknowledged nothing for %s: %w", key.Part, key.Topic, silent.Round(time.Second), calls.ErrNoAnswer)
		switch {
		case l.ended != nil:
			p.endReplay(l, replayEnd{err: fmt.Errorf("%w: %w", errStalled, err)})
		case l.outstanding > 0:
			it.death = &death{class: chains.ClassBehind, err: fmt.Errorf("an earlier event of the aggregate is with the producer: %w", err)}
			p.write(l)
		default:
			it.attempts = max(it.attempts, len(p.cfg.RetryDelays))
			p.bury(l, usedUp(it, err))
		}
	}
}

// StalledTopics returns the sorted names of the topics with a stalled partition. p may be
// nil.
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
