package publish

import (
	"context"
	"errors"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// TopicName returns the topic of an event.
func (p *Publisher) TopicName(e *outbox.Event) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names.Of(e)
}

// makeTopic creates the topic and then restarts the lanes that wait for it. Called locked.
func (p *Publisher) makeTopic(topic string, l *lane) {
	key := Partition{topic, -1}
	f := p.flowOf(key)
	f.waiting[l] = struct{}{}
	if f.creating {
		return
	}
	f.creating = true
	p.calls.Wake() // the creation may take longer than other lanes may wait
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
				// The lane does not wait for this topic now.
			case failure.Classify(err) == failure.Permanent && !p.stays(l, it):
				p.refuse(l, err)
			}
		}
	})
}

// EnsureTopic creates the topic if it is missing and retries as long as the broker is
// unavailable. The error is Permanent, Stopped or Fatal; a Fatal one is already reported.
func (p *Publisher) EnsureTopic(ctx context.Context, topic string) error {
	for attempt := 1; ; attempt++ {
		var err error
		if p.remember != nil {
			err = p.remember(ctx, topic)
		}
		if err == nil {
			var found topics.Found
			if err = p.calls.Do(ctx, func() (err error) {
				found, err = p.producer.Catalog.Ensure(ctx, topic)
				return err
			}); err == nil {
				p.producer.Know(topic, &found, p.hasOutstanding)
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
		p.log.Warn("topic is not ready, retrying", "topic", topic, "attempt", attempt, "wait", wait, "err", err)
		if err := retry.Wait(ctx, wait); err != nil {
			return errors.Join(failure.ErrStopping, err)
		}
	}
}
