package plugin

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// Event is the input of a plugin. Plugins must not modify the data that it refers to.
type Event struct {
	kafkarecord.Event
	// Subscription is the name of the subscription.
	Subscription string
	// DeliveryID is the same for every attempt, also after a crash, a seek, or a replay of
	// the dead letter: the external system can use it to detect repetitions.
	DeliveryID string
	// Attempt counts from 1; 0 for CanHandle.
	Attempt int
}

// Plugin delivers events. The engine calls it from up to Push.Concurrency goroutines of the
// subscription; with OrderingNone, also for one key.
type Plugin interface {
	// CanHandle reports whether the plugin accepts an event that the subscription selects, as
	// transformed; others are settled without a delivery. It must not block: the subscription waits
	// for it.
	CanHandle(e Event) bool
	// Process returns nil when the event is delivered. Any other error, or a panic, is a
	// failed delivery; RetryAfter sets the delay of the next one, and Permanent ends the
	// message as a dead letter. Process should return when ctx ends: a call that does not
	// occupies one of the places of its subscription, and blocks its key, until it returns.
	// Errors are stored and shown: they must not contain secrets.
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

// RetryAfter marks an error with the delay that its cause requested. The delay is at most
// the MaxBackoff of the subscription.
func RetryAfter(err error, wait time.Duration) error { return notify.After(err, wait) }

// Unavailable marks an error whose cause is the destination, not the message: it counts as a
// delivery of the message only if other messages are delivered meanwhile, and several in a row
// suspend the subscription until a probe succeeds.
func Unavailable(err error) error { return notify.Unavailable(err) }

// IsUnavailable reports whether Unavailable marked an error.
func IsUnavailable(err error) bool { return notify.IsUnavailable(err) }

// IsTarget reports whether the plugin is a target: then each error that is not permanent
// may have its cause there.
func IsTarget(p Plugin) bool {
	_, ok := p.(*notice)
	return ok
}

// IsPermanent reports whether Permanent marked an error.
func IsPermanent(err error) bool { return notify.IsPermanent(err) }

// RequestedWait returns the delay that RetryAfter set; 0 for none.
func RequestedWait(err error) time.Duration { return notify.RequestedWait(err) }

// Accepts calls CanHandle. After a panic the plugin receives the event, so that the failure
// is recorded.
func Accepts(p Plugin, e Event) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = true
		}
	}()
	return p.CanHandle(e)
}

// AcceptsAll reports whether Accepts is true for every event.
func AcceptsAll(p Plugin) bool {
	switch p.(type) {
	case Func, *notice:
		return true
	}
	return false
}

// Call calls Process and returns a panic as an error; stack receives its stack trace.
func Call(ctx context.Context, p Plugin, e Event, stack func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			stack()
			err = fmt.Errorf("the plugin panicked: %v", v)
		}
	}()
	return p.Process(ctx, e)
}

// namespace is that of the ids of deliveries.
var namespace = gocql.UUID{0x9b, 0x21, 0x5d, 0xd0, 0x6f, 0x3a, 0x4e, 0x52, 0x8c, 0x0e, 0x4d, 0x8e, 0x26, 0x7b, 0x51, 0xaa}

// NewEvent returns an event of a subscription with its delivery id. Sources may have the
// same sequential event ids, so an id that is not a UUID is combined with its source. An
// event without an id is identified by its position.
func NewEvent(subscription string, e kafkarecord.Event, attempt int) Event {
	var id gocql.UUID
	switch {
	case e.ID != "" && (e.Source == "" || rows.IDOf(e.ID).String() == e.ID):
		id = outbox.NameID(namespace, subscription, "event", e.ID).UUID()
	case e.ID != "":
		id = outbox.NameID(namespace, subscription, "event of", e.Source, e.ID).UUID()
	default:
		id = outbox.NameID(namespace, subscription, "record", e.Topic, strconv.Itoa(int(e.Partition)), strconv.FormatInt(e.Offset, 10)).UUID()
	}
	return Event{Event: e, Subscription: subscription, DeliveryID: id.String(), Attempt: attempt}
}
