package publish

import (
	"maps"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// probe is a suspect of a partition that is being sent alone, because a refusal fails
// everything that was buffered for the partition: the broker's answer is about this
// event. Nothing else is sent to the partition before that; others continue.
type probe struct {
	lane *lane
	// suspects are those that are sent after it, one after the other, and waiting
	// the lanes that go on when there is none.
	suspects []*lane
	waiting  map[*lane]struct{}
}

// refuse deals with an error that says the front item cannot be sent. The
// first time, unless the error is the relay's own or concerns the whole topic, the
// item may have been failed together with another one of its partition, so it is
// sent once more, alone. Called locked, with nothing outstanding.
func (p *Publisher) refuse(l *lane, err error) {
	front := l.items[0]
	if !l.suspect && front.topicErr == nil && !failure.IsTopicRefused(err) {
		l.suspect, l.failed = true, nil
		if tooLarge(err) {
			p.measure(l, front.topic)
			return
		}
		p.pump(l)
		return
	}
	l.suspect = true
	p.endProbe(l)
	switch {
	case l.ended != nil:
		p.endReplay(l, replayEnd{err: err})
		return
	case p.letters.on():
		p.bury(l, err)
		return
	}
	if l.hold == nil {
		l.hold = &Hold{
			AggregateID: l.id, EventID: front.event.ID, Sequence: front.event.Sequence, Topic: front.topic, since: time.Now(),
		}
		p.held[l.id] = l.hold
		p.log.Error("event cannot be published; its aggregate is held, nothing is skipped",
			"event_id", front.event.ID, "aggregate_id", l.id, "seq", front.event.Sequence, "topic", front.topic, "err", err, trace.Attrs(front.event.Headers))
	}
	l.hold.Err = err
	l.hold.attempts = front.attempts
	if tooLarge(err) {
		p.measure(nil, front.topic)
	}
	p.resume(l, p.cfg.HoldRetry)
}

// waitsForProbe reports whether the lane waits for a suspect of the partition: itself,
// until nothing else is under way, or another. A suspect becomes the partition's probe
// if there is none. Called locked.
func (p *Publisher) waitsForProbe(l *lane, key Partition) bool {
	pr := p.probes[key]
	switch {
	case pr == nil && !l.suspect:
		return false
	case pr == nil:
		pr = &probe{lane: l, waiting: make(map[*lane]struct{})}
		p.probes[key] = pr
		l.probed = key
		fallthrough
	case pr.lane == l:
		f := p.flows[key]
		return f != nil && f.open > 0 // the last of them pumps
	case !l.suspect:
		pr.waiting[l] = struct{}{}
	case !slices.Contains(pr.suspects, l):
		pr.suspects = append(pr.suspects, l)
	}
	return true
}

// pumpProbe sends the partition's suspect when nothing else is under way to it.
func (p *Publisher) pumpProbe(key Partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pr := p.probes[key]; pr != nil {
		p.pump(pr.lane)
	}
}

// pump pumps all that wait for a probe, and its own lane. Called locked.
func (pr *probe) pump(p *Publisher) {
	if pr == nil {
		return
	}
	for _, l := range slices.Concat([]*lane{pr.lane}, pr.suspects, slices.Collect(maps.Keys(pr.waiting))) {
		if len(l.items) > 0 {
			p.pump(l)
		}
	}
}

// endProbe lets the next suspect of the partition be sent, if l was the one, and all
// others when there is none. Called locked.
func (p *Publisher) endProbe(l *lane) {
	pr := p.probes[l.probed]
	if pr == nil || pr.lane != l {
		return
	}
	delete(p.probes, l.probed)
	// The first suspect that is one still makes the next probe, and the rest wait
	// for it again.
	for _, s := range pr.suspects {
		if len(s.items) > 0 && s.suspect {
			p.pump(s)
		}
	}
	for w := range pr.waiting {
		if len(w.items) > 0 {
			p.pump(w)
		}
	}
}
