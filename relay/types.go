package relay

import (
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// Types of Status and Config that the parts of the relay declare.
type (
	// BreakerStatus is the state of the circuit breaker before the broker.
	BreakerStatus = publish.BreakerStatus
	// BreakerState is closed, open or half-open.
	BreakerState = publish.BreakerState
	// DataLoss is a partition that no longer contains records which it acknowledged.
	DataLoss = publish.DataLoss
	// Fence decides whether a relay may still write.
	Fence = fence.Fence
	// Hold is an aggregate whose front event cannot be published.
	Hold = publish.Hold
	// Load is the load of the relay's container, in percent.
	Load = publish.Load
	// LoadMeter measures the load of the relay's container.
	LoadMeter = publish.LoadMeter
	// StalledTopic is a topic with a partition that acknowledges nothing.
	StalledTopic = publish.StalledTopic
	// TailStatus is the status of the tail reader.
	TailStatus = capture.TailStatus
	// UnstoredDeadLetter is a dead letter that could not be stored so far.
	UnstoredDeadLetter = publish.UnstoredDeadLetter
	// WaitingAggregates are aggregates that wait for an earlier event.
	WaitingAggregates = capture.WaitingAggregates
)

// The states of the breaker.
const (
	BreakerClosed   = publish.BreakerClosed
	BreakerOpen     = publish.BreakerOpen
	BreakerHalfOpen = publish.BreakerHalfOpen
)

// ExpandTopic returns the topic that a template makes for an event of these types.
func ExpandTopic(template, eventType, aggregateType string) string {
	return topics.Expand(template, eventType, aggregateType)
}

// Types of repairs: events that a verification found missing and that the relay publishes
// on request.
type (
	// BackfillStatus is the progress of a scan of the outbox table.
	BackfillStatus = backfill.Status
	// Repair is a request to publish an event.
	Repair = backfill.Repair
	// Repairs are the requests of a relay, in the table relay_repairs.
	Repairs = backfill.Repairs
	// RepairState is the state of a request.
	RepairState = backfill.RepairState
)

// States of a Repair.
const (
	RepairAsked      = backfill.RepairAsked
	RepairTaken      = backfill.RepairTaken
	RepairPublished  = backfill.RepairPublished
	RepairGone       = backfill.RepairGone
	RepairUnreadable = backfill.RepairUnreadable
	RepairUnknown    = backfill.RepairUnknown
)

// NewRepairs returns the requests to the relay of that name about the events of a table,
// "keyspace.table"; relay_repairs is in the given keyspace.
func NewRepairs(session *gocql.Session, keyspace, relay, table string) *Repairs {
	return backfill.NewRepairs(session, keyspace, relay, table)
}
