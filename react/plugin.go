package react

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
)

// Event is the input of a plugin. Plugins must not modify the data that it
// refers to.
type Event struct {
	kafkarecord.Event
	// Rule is the name of the rule that matched.
	Rule string
	// DeliveryID is the same for every attempt, also after a crash: the external
	// system can use it to detect repetitions.
	DeliveryID string
	// Attempt counts from 1; 0 for CanHandle.
	Attempt int
}

// Plugin delivers events. The reactor calls it from up to Concurrency
// goroutines of the rule; without order, also for one aggregate.
type Plugin interface {
	// CanHandle reports whether the plugin accepts an event that matches the rule.
	// It must not block: the rule waits for it.
	CanHandle(e Event) bool
	// Process returns nil when the event is delivered. Any other error, or a
	// panic, is retried, unless Permanent made it; RetryAfter sets the delay.
	// Process should return when ctx ends: a call that does not is abandoned and
	// occupies one of its rule's places until it returns. Errors are stored and
	// shown: they must not contain secrets.
	Process(ctx context.Context, e Event) error
}

// Func is a function as a Plugin that accepts every event.
type Func func(ctx context.Context, e Event) error

// CanHandle is always true.
func (Func) CanHandle(Event) bool { return true }

// Process calls f.
func (f Func) Process(ctx context.Context, e Event) error { return f(ctx, e) }

// Permanent marks an error that must not be retried.
func Permanent(err error) error { return notify.Permanent(err) }

// RetryAfter marks an error with the delay that its cause requested. The delay
// is at most the rule's MaxBackoff.
func RetryAfter(err error, wait time.Duration) error { return notify.After(err, wait) }
