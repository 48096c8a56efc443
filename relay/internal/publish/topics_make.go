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
	fatal    func(error)
	// remember saves the name of a topic before its first event is sent; nil if a
	// start after a crash does not need it.
	remember func(context.Context, string) error
	records  outstandingRecords
}

// outstandingRecords is the publisher as topicMaker uses it. It is called without locks.
type outstandingRecords interface {
	// hasOutstanding reports whether records of the topic are outstanding.
	hasOutstanding(topic string) bool
}

// ensure creates the topic if it is missing and retries as long as the broker is
// unavailable. The error is Permanent, Stopped or Fatal; a Fatal one is already reported.
func (t *topicMaker) ensure(ctx context.Context, topic string) error {
	for attempt := 1; ; attempt++ {
		var err error
		if t.remember != nil {
			err = t.remember(ctx, topic)
		}
		if err == nil {
			var found topics.Found
			if err = t.calls.Do(ctx, func() (err error) {
				found, err = t.producer.Catalog.Ensure(ctx, topic)
				return err
			}); err == nil {
				t.producer.Know(topic, &found, t.records.hasOutstanding)
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
			t.fatal(err)
			return err
		}
		wait := retry.Backoff(t.cfg.RetryMin, t.cfg.RetryMax, attempt)
		t.cfg.Logger.Warn("topic is not ready, retrying", "topic", topic, "attempt", attempt, "wait", wait, "err", err)
		if err := retry.Wait(ctx, wait); err != nil {
			return errors.Join(failure.ErrStopping, err)
		}
	}
}
