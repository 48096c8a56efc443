package relay

import (
	"errors"
	"fmt"
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
	waiting map[*lane]struct{}
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
		f.stalled = false
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
		}
		if silent < p.cfg.usedUpAfter() || !p.letters.on() {
			continue
		}
		for l := range f.waiting {
			if p.letters.spilled+p.letters.writing >= p.cfg.SpillLimit {
				return
			}
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
