package relay

import (
	"context"
	"errors"

	"github.com/scylla-outbox/scylla-outbox/internal/again"
)

// makeTopic makes the topic and then starts the lanes that wait for it. Called locked.
func (p *publisher) makeTopic(topic string, l *lane) {
	waiting, running := p.waiting[topic]
	p.waiting[topic] = append(waiting, l)
	if running {
		return
	}
	p.wg.Go(func() {
		err := p.ensureTopic(p.ctx, topic)
		p.mu.Lock()
		defer p.mu.Unlock()
		lanes := p.waiting[topic]
		delete(p.waiting, topic)
		for _, l := range lanes {
			l.paused = false
			switch {
			case err == nil:
				p.pump(l)
			case Classify(err) == Permanent:
				l.suspect = true
				p.refuse(l, err)
			}
		}
	})
}

// ensureTopic makes the topic, however long the broker is away. The error is
// Permanent, or Stopped; of a Fatal one the relay was told.
func (p *publisher) ensureTopic(ctx context.Context, topic string) error {
	for attempt := 1; ; attempt++ {
		var err error
		if p.topics.wasDeleted(topic) {
			// The client still has the id of the topic that was deleted.
			p.client.PurgeTopicsFromProducing(topic)
		}
		if p.remember != nil {
			err = p.remember(ctx, topic)
		}
		if err == nil {
			err = p.attempt(ctx, func() error { return p.topics.ensure(ctx, topic) })
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(ErrStopping, err)
		}
		switch Classify(err) {
		case Permanent, Stopped:
			return err
		case Fatal:
			p.fatal(err)
			return err
		}
		wait := backoff(p.cfg.RetryMin, p.cfg.RetryMax, attempt)
		p.log.Warn("topic is not ready; trying again", "topic", topic, "attempt", attempt, "wait", wait, "err", err)
		if err := again.Wait(ctx, wait); err != nil {
			return errors.Join(ErrStopping, err)
		}
	}
}
