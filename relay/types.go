package relay

import (
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

// Types of Status and Config that the parts of the relay declare.
type (
	// BreakerStatus is the state of the circuit breaker before the broker.
	BreakerStatus = publish.BreakerStatus
	// BreakerState is closed, open or half-open.
	BreakerState = publish.BreakerState
	// DataLoss is a partition that no longer contains records which it acknowledged.
	DataLoss = publish.DataLoss
	// Hold is an aggregate whose front event cannot be published.
	Hold = publish.Hold
	// Load is the load of the relay's container, in percent.
	Load = publish.Load
	// ReadBacks lets the shards of one process read the topics back together.
	ReadBacks = readback.Group
	// StalledTopic is a topic with a partition that acknowledges nothing.
	StalledTopic = publish.StalledTopic
	// UnstoredDeadLetter is a dead letter that could not be stored so far.
	UnstoredDeadLetter = publish.UnstoredDeadLetter
)

// The states of the breaker.
const (
	BreakerClosed   = publish.BreakerClosed
	BreakerOpen     = publish.BreakerOpen
	BreakerHalfOpen = publish.BreakerHalfOpen
)

// ExpandTopic returns the topic that a template makes for an event of these types.
func ExpandTopic(template, eventType, aggregateType string) string {
	return publish.ExpandTopic(template, eventType, aggregateType)
}
