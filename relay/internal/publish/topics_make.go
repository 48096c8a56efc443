package publish

import (
	"context"
	"errors"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// makeTopic makes the topic and then starts the lanes that wait for it. Called locked.
func (p *Publisher) makeTopic(topic string, l *lane) {
	key := Partition{topic, -1}
	f := p.flowOf(key)
	f.waiting[l] = struct{}{}
	if f.creating {
		return
	}
	f.creating = true
	p.nudge() // it may take longer than others wait for it
	p.wg.Go(func() {
		err := p.EnsureTopic(p.ctx, topic)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.flows, key)
		for l := range f.waiting {
			it := l.firstQueued()
			switch {
			case err == nil:
				p.pump(l)
			case it == nil || it.topic != topic || l.outstanding > 0 || l.writing || l.paused || l.failed != nil:
				// It is not at the event that waits for the topic.
			case failure.Classify(err) == failure.Permanent && !p.stays(l, it):
				p.refuse(l, err)
			}
		}
	})
}

// EnsureTopic makes the topic, however long the broker is away. The error is
// Permanent or Stopped, or Fatal, which it has reported.
func (p *Publisher) EnsureTopic(ctx context.Context, topic string) error {
	for attempt := 1; ; attempt++ {
		var err error
		if p.remember != nil {
			err = p.remember(ctx, topic)
		}
		if err == nil {
			var found foundTopic
			if err = p.attempt(ctx, func() (err error) {
				found, err = p.topics.ensure(ctx, topic)
				return err
			}); err == nil {
				p.noteTopic(topic, &found)
			}
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(failure.ErrStopping, err)
		}
		switch failure.Classify(err) {
		case failure.Permanent, failure.Stopped:
			return err
		case failure.Fatal:
			p.fatal(err)
			return err
		}
		wait := retry.Backoff(p.cfg.RetryMin, p.cfg.RetryMax, attempt)
		p.log.Warn("topic is not ready; trying again", "topic", topic, "attempt", attempt, "wait", wait, "err", err)
		if err := retry.Wait(ctx, wait); err != nil {
			return errors.Join(failure.ErrStopping, err)
		}
	}
}

// noteTopic notes a topic that exists, again if it was forgotten.
//
// A client keeps the id that a topic had at first, so of one that was deleted and
// made anew it has to be told. That gives back what it has of the topic, though the
// broker may have it too, and begins the numbers of its partitions anew. Where the
// topic is still the same one the records stay where they are therefore: a broker
// that does not know it for a while is no reason to send them twice. Only the
// client's own mistake, an id that it learned from a broker that was behind, is
// mended then, once nothing is under way.
func (p *Publisher) noteTopic(topic string, found *foundTopic) {
	other, strange := p.topics.replaced(topic, found)
	p.mu.Lock()
	purge := other || strange && !p.flowing(topic)
	larger := p.larger[topic].client
	p.mu.Unlock()
	if purge {
		p.client.PurgeTopicsFromProducing(topic)
		if larger != nil {
			larger.PurgeTopicsFromProducing(topic)
		}
	}
	p.partitions.know(topic, found.partitions)
	p.topics.know(topic, found)
}
