package publish

import (
	"context"
	"errors"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// TopicNames are the stored names of the topics that a relay publishes to. It is safe for
// concurrent use.
type TopicNames interface {
	// Remember stores the name of a topic unless it is stored. It is called without locks.
	Remember(ctx context.Context, topic string) error
}

// EnsureTopic creates the topic if it is missing and retries as long as the broker is
// unavailable. The error is Permanent, Stopped or Fatal; a Fatal one is already reported.
func (p *Publisher) EnsureTopic(ctx context.Context, topic string) error {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		var err error
		if p.topicNames != nil {
			err = p.topicNames.Remember(ctx, topic)
		}
		if err == nil {
			err = p.calls.Do(ctx, func() error { return p.producer.Ensure(ctx, topic) })
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(failure.ErrStopping, err)
		}
		class := failure.Classify(err)
		switch believed := time.Since(began) >= producer.AgreeAfter || !mayPass(err); {
		case class == failure.Stopped, class == failure.Permanent && believed:
			return err
		case class == failure.Fatal && believed:
			p.fatal(err)
			return err
		}
		wait := retry.Backoff(p.cfg.RetryMin, p.cfg.RetryMax, attempt)
		if class != failure.Transient {
			wait = min(wait, producer.AgreeAfter/10)
		}
		p.cfg.Logger.Warn("topic is not ready, retrying", "topic", topic, "attempt", attempt, "wait", wait, "err", err)
		if err := retry.Wait(ctx, wait); err != nil {
			return errors.Join(failure.ErrStopping, err)
		}
	}
}

// mayPass reports whether the refusal may be that of a broker that does not know the topic yet:
// it then refuses to create it, or Redpanda a producer id to a relay that may write to it.
func mayPass(err error) bool {
	_, refused := errors.AsType[*failure.RefusedError](err)
	return refused || producer.IsProducerIDRefused(err)
}
