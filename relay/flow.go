package relay

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// topicFlow is a topic with records outstanding. One that acknowledges nothing
// for AttemptTimeout, while the breaker is closed because others do, is stalled:
// no more is handed to it, so that its events do not fill the producer. When
// that has gone on for as long as all attempts of an event would take, what
// waits for it becomes dead letters. What the producer has stays there: the
// broker may have it too.
type topicFlow struct {
	open    int
	since   time.Time // of the last acknowledgement, or of the first record
	stalled bool
	// holding says that no more dead letters are made of what waits for the topic,
	// because there are Config.SpillLimit of them.
	holding bool
	waiting map[*lane]struct{}
}

// StalledTopic is a topic that acknowledges nothing while others do.
type StalledTopic struct {
	Topic string
	// Since is when it acknowledged something last, or was first sent something.
	Since time.Time
	// Records are with the producer, which keeps them; Aggregates wait behind.
	Records, Aggregates int
	// Holding says that Config.SpillLimit dead letters are open, so that what is
	// for this topic fills the relay's memory, and then reading stops.
	Holding bool
}

// stalled returns the topics that acknowledge nothing, by name; none while the
// breaker says that no topic does. Called locked.
func (p *publisher) stalled() []StalledTopic {
	var out []StalledTopic
	if p.breaker.status.State != BreakerClosed {
		return nil
	}
	for topic, f := range p.flows {
		if f.stalled {
			out = append(out, StalledTopic{Topic: topic, Since: f.since, Records: f.open, Aggregates: len(f.waiting), Holding: f.holding})
		}
	}
	slices.SortFunc(out, func(a, b StalledTopic) int { return strings.Compare(a.Topic, b.Topic) })
	return out
}

// errStalled calls off the replay of an event that was not tried.
var errStalled = errors.New("its topic is stalled")

// stalls says that the lane has to wait for the topic.
func (f *topicFlow) stalls(l *lane) bool {
	if f == nil || !f.stalled {
		return false
	}
	f.waiting[l] = struct{}{}
	return true
}

// flow notes a record on its way to the topic. Called locked.
func (p *publisher) flow(topic string) {
	f := p.flows[topic]
	if f == nil {
		f = &topicFlow{since: time.Now(), waiting: make(map[*lane]struct{})}
		p.flows[topic] = f
	}
	f.open++
}

// ebb notes that a record is back and says whether it was the last one. Called locked.
func (p *publisher) ebb(topic string, acked bool) (last bool) {
	f := p.flows[topic]
	f.open--
	if acked {
		f.since = time.Now()
	}
	if f.open == 0 {
		delete(p.flows, topic)
	}
	if f.stalled && (acked || f.open == 0) && !p.closed {
		f.stalled, f.holding = false, false
		waiting := f.waiting
		f.waiting = make(map[*lane]struct{})
		p.wg.Go(func() { // the caller is in the middle of something
			p.mu.Lock()
			defer p.mu.Unlock()
			for l := range waiting {
				p.pump(l)
			}
		})
	}
	return f.open == 0
}

// lookAtFlows finds topics that take nothing. Called locked.
func (p *publisher) lookAtFlows(now time.Time) {
	if p.breaker.status.State != BreakerClosed {
		return
	}
	for topic, f := range p.flows {
		silent := now.Sub(f.since)
		if silent < p.cfg.AttemptTimeout {
			continue
		}
		if !f.stalled {
			f.stalled = true
			p.log.Warn("a topic acknowledges nothing; its events wait", "topic", topic, "for", silent, "records", f.open)
			p.probes[topic].pump(p) // who waits for a suspect waits for the topic now
		}
		if silent < p.cfg.usedUpAfter() || !p.letters.on() {
			continue
		}
		for l := range f.waiting {
			if p.letters.spilled+p.letters.writing >= p.cfg.SpillLimit {
				if !f.holding {
					f.holding = true
					p.log.Error("a topic acknowledges nothing and no more dead letters are made; its events wait in memory, and reading stops when that is full",
						"topic", topic, "for", silent, "spill_limit", p.cfg.SpillLimit, "aggregates", len(f.waiting))
				}
				return
			}
			f.holding = false
			delete(f.waiting, l)
			it := l.firstQueued()
			if it == nil || it.topic != topic || l.outstanding > 0 || l.writing || l.failed != nil {
				continue
			}
			err := fmt.Errorf("topic %s has acknowledged nothing for %s: %w", topic, silent.Round(time.Second), errNoAnswer)
			if l.ended != nil {
				p.endReplay(l, replayEnd{err: fmt.Errorf("%w: %w", errStalled, err)})
				continue
			}
			it.attempts = max(it.attempts, len(p.cfg.RetryDelays))
			p.bury(l, usedUp(it, err))
		}
	}
}
