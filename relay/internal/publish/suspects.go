package publish

import (
	"maps"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
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

// refuseLocked handles a permanent error of the front item. The first time, the item may
// have failed together with another one of its partition, so it is sent once more, alone,
// unless the error is the relay's own or concerns the whole topic. Called with nothing
// outstanding.
func (p *Publisher) refuseLocked(l *lane, err error) {
	front := l.items[0]
	if !l.suspect && front.topicErr == nil && !failure.IsTopicRefused(err) {
		l.suspect, l.failed = true, nil
		p.pumpLocked(l)
		return
	}
	l.suspect = true
	p.endProbeLocked(l)
	switch {
	case l.replay != nil:
		p.endReplayLocked(l, replayEnd{err: err})
		return
	case p.table.exists():
		p.writer.writeForLocked(l, err)
		return
	}
	if l.hold == nil {
		l.hold = &Hold{
			AggregateID: l.id, EventID: front.event.ID.UUID(), Sequence: front.event.Sequence, Topic: front.topic, since: time.Now(),
		}
		l.home.held[l.id] = l.hold
		p.log.Error("event cannot be published, aggregate held",
			"event_id", front.event.ID, "aggregate_id", l.id, "sequence", front.event.Sequence, "topic", front.topic, "err", err, trace.Attrs(front.event.Headers))
	}
	l.hold.Err = err
	l.hold.attempts = front.attempts
	p.resumeLocked(l, p.cfg.HoldRetry)
}

// waits reports whether the lane waits for a suspect of the partition: for another one,
// or, if it is the suspect itself, until nothing else is outstanding there. A suspect
// becomes the partition's probe if there is none.
func (ps probes) waits(l *lane, key Partition, in *flows) bool {
	pr := ps[key]
	switch {
	case pr == nil && !l.suspect:
		return false
	case pr == nil:
		pr = &probe{lane: l, waiting: make(map[*lane]struct{})}
		ps[key] = pr
		l.probed = key
		fallthrough
	case pr.lane == l:
		return in.isBusy(key) // the last record to return pumps
	case !l.suspect:
		pr.waiting[l] = struct{}{}
	case !slices.Contains(pr.suspects, l):
		pr.suspects = append(pr.suspects, l)
	}
	return true
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
		if len(s.items) > 0 && s.suspect {
			p.pumpLocked(s)
		}
	}
	for w := range pr.waiting {
		if len(w.items) > 0 {
			p.pumpLocked(w)
		}
	}
}
