package react

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
)

// Event is what a plugin gets. Plugins must not change what it refers to.
type Event struct {
	kafkarecord.Event
	// Rule is the name of the rule that matched.
	Rule string
	// DeliveryID is the same for every attempt, after a crash too: what a plugin does
	// outside may be told from its repetition by it.
	DeliveryID string
	// Attempt counts from 1; 0 for CanHandle.
	Attempt int
}

// Plugin takes events somewhere. The reactor calls it from as many goroutines as
// the rule's Concurrency says; without order, also for one aggregate.
type Plugin interface {
	// CanHandle says whether the event is for this plugin, after the rule has matched.
	// It must not wait: the rule stands still meanwhile.
	CanHandle(e Event) bool
	// Process returns nil when the event is where it should be. Any other error, or a
	// panic, is tried again, unless Permanent made it; RetryAfter says when. It should
	// return when ctx ends: a call that does not is left alone and keeps one of its
	// rule's places until it returns. Errors are stored and shown: no secret may be in
	// them.
	Process(ctx context.Context, e Event) error
}

// Func is a Plugin that is a function, and handles everything.
type Func func(ctx context.Context, e Event) error

// CanHandle is always true.
func (Func) CanHandle(Event) bool { return true }

// Process calls f.
func (f Func) Process(ctx context.Context, e Event) error { return f(ctx, e) }

// Permanent marks an error that another attempt does not mend.
func Permanent(err error) error { return notify.Permanent(err) }

// RetryAfter marks an error whose cause said how long to wait. The reactor waits no
// longer than the rule's MaxBackoff.
func RetryAfter(err error, wait time.Duration) error { return notify.After(err, wait) }
