package publish

import (
	"context"
	"errors"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// topicMaker creates topics. It is safe for concurrent use and calls its functions without
// locks.
type topicMaker struct {
	cfg      *Config
	producer *producer.Producer
	calls    *calls.Calls
	// names has the topic before its first event is sent; nil if a start after a crash
	// does not need it.
	names TopicNames
	owner topicOwner
}

// TopicNames are the stored names of the topics that a relay publishes to. It is safe for
// concurrent use.
type TopicNames interface {
	// Remember stores the name of a topic unless it is stored. It is called without locks.
	Remember(ctx context.Context, topic string) error
}

// topicOwner is the publisher as topicMaker uses it. It is called without locks.
type topicOwner interface {
	// hasOutstanding reports whether records of the topic are outstanding.
	hasOutstanding(topic string) bool
	// end stops the relay with an error.
	end(err error)
}

// ensure creates the topic if it is missing and retries as long as the broker is
// unavailable. The error is Permanent, Stopped or Fatal; a Fatal one is already reported.
func (t *topicMaker) ensure(ctx context.Context, topic string) error {
	for attempt := 1; ; attempt++ {
		var err error
		if t.names != nil {
			err = t.names.Remember(ctx, topic)
		}
		if err == nil {
			var found topics.Found
			if err = t.calls.Do(ctx, func() (err error) {
				found, err = t.producer.Catalog.Ensure(ctx, topic)
				return err
			}); err == nil {
				t.producer.Know(topic, &found, t.owner.hasOutstanding)
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
			t.owner.end(err)
			return err
		}
		wait := retry.Backoff(t.cfg.RetryMin, t.cfg.RetryMax, attempt)
		t.cfg.Logger.Warn("topic is not ready, retrying", "topic", topic, "attempt", attempt, "wait", wait, "err", err)
		if err := retry.Wait(ctx, wait); err != nil {
			return errors.Join(failure.ErrStopping, err)
		}
	}
}
