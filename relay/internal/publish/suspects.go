package publish

import (
	"maps"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// probe is a suspect of a partition that is sent alone. A refusal fails everything
// buffered for the partition, so only an event sent alone gets an answer of its own.
// Until then nothing else is sent to the partition; other partitions continue.
type probe struct {
	lane *lane
	// suspects are sent after it, one after the other. The lanes in waiting continue
	// when no suspect is left.
	suspects []*lane
	waiting  map[*lane]struct{}
}

// probes contains the probe of each partition with a suspect. Publisher.mu guards it.
type probes map[Partition]*probe

// holdLocked holds the aggregate of a front that was refused alone, and cannot become a dead
// letter.
func (p *Publisher) holdLocked(l *lane, err error, now time.Time) {
	front := l.items[0]
	if l.hold == nil {
		l.hold = &Hold{
			AggregateID: l.id, EventID: front.event.ID.UUID(), Sequence: front.event.Sequence, Topic: front.topic, since: now,
		}
		l.home.held[l.id] = l.hold
		p.log.Error("event cannot be published, aggregate held",
			"event_id", front.event.ID, "aggregate_id", l.id, "sequence", front.event.Sequence, "topic", front.topic, "err", err, trace.Attrs(front.event.Headers))
	}
	l.hold.Err = err
}

// of returns whose probe the partition has.
func (ps probes) of(key Partition, l *lane) probeOf {
	switch pr := ps[key]; {
	case pr == nil:
		return noProbe
	case pr.lane == l:
		return ownProbe
	}
	return otherProbe
}

// begin makes the lane, which is a suspect, the probe of a partition without one.
func (ps probes) begin(l *lane, key Partition) {
	ps[key] = &probe{lane: l, waiting: make(map[*lane]struct{})}
	l.probed = key
}

// wait makes the lane decide again after the probe of the partition.
func (ps probes) wait(key Partition, l *lane) {
	switch pr := ps[key]; {
	case pr.lane == l: // the last record to return pumps
	case l.state != laneSuspect:
		pr.waiting[l] = struct{}{}
	case !slices.Contains(pr.suspects, l):
		pr.suspects = append(pr.suspects, l)
	}
}

// pumpProbe sends the partition's suspect when nothing else is in progress there.
func (p *Publisher) pumpProbe(key Partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pr := p.mu.probes[key]; pr != nil {
		p.pumpLocked(pr.lane)
	}
}

// lanes returns the lane of a probe and all lanes that wait for it.
func (pr *probe) lanes() []*lane {
	if pr == nil {
		return nil
	}
	return slices.Concat([]*lane{pr.lane}, pr.suspects, slices.Collect(maps.Keys(pr.waiting)))
}

// endProbeLocked ends the probe if its lane is l: the next suspect of the partition is
// sent, or all waiting lanes if there is none.
func (p *Publisher) endProbeLocked(l *lane) {
	pr := p.mu.probes[l.probed]
	if pr == nil || pr.lane != l {
		return
	}
	delete(p.mu.probes, l.probed)
	// The first lane that is still a suspect starts the next probe, and the rest wait
	// for it.
	for _, s := range pr.suspects {
		if len(s.items) > 0 && s.state == laneSuspect {
			p.pumpLocked(s)
		}
	}
	for w := range pr.waiting {
		if len(w.items) > 0 {
			p.pumpLocked(w)
		}
	}
}
