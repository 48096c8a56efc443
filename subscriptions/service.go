package subscriptions

import (
	"context"
	"errors"
	"time"

	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// Errors of a Service.
var (
	// ErrNotFound is returned for a subscription that does not exist.
	ErrNotFound = errors.New("no such subscription")
	// ErrVersion is returned by Put and Delete for another version than the stored one.
	ErrVersion = errors.New("the subscription has changed since it was read")
	// ErrUnavailable is returned while the database or the broker is not reachable, and
	// by instances that are starting or stopping.
	ErrUnavailable = errors.New("subscriptions are unavailable")
)

// Status is the state of a subscription over all its instances.
type Status struct {
	Subscription Subscription
	// Partitions are sorted by topic and number. Partitions without an owner are listed
	// with their committed offset.
	Partitions []PartitionStatus
	// Instances are the processes that run the subscription.
	Instances []InstanceStatus
	// Waiting, Leased, Deferred and Lag are sums over the partitions. Oldest is the write time
	// of the oldest message that is not settled.
	Waiting, Leased, Deferred, Lag int64
	Oldest                         time.Time
	// Consumers are the consumers that wait for messages, by instance and name.
	Consumers []WaitingConsumer
	// DeadLetters is the number of open dead letters, at most 10,000; more are shown as
	// 10,000.
	DeadLetters int
	// Skips are the ranges of offsets that were passed over without a delivery.
	Skips []Skip
}

// AddPartitions sets the sums over the partitions.
func (s *Status) AddPartitions() {
	s.Waiting, s.Leased, s.Deferred, s.Lag, s.Oldest = 0, 0, 0, 0, time.Time{}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		s.Waiting, s.Leased, s.Deferred, s.Lag = s.Waiting+p.Waiting, s.Leased+p.Leased, s.Deferred+p.Deferred, s.Lag+p.Lag
		if !p.Oldest.IsZero() && (s.Oldest.IsZero() || p.Oldest.Before(s.Oldest)) {
			s.Oldest = p.Oldest
		}
	}
}

// Parts of a status that have the types of the API.
type (
	// PartitionStatus is the state of one partition.
	PartitionStatus = client.PartitionStatus
	// InstanceStatus is the state of a process that runs a subscription.
	InstanceStatus = client.InstanceStatus
	// WaitingConsumer is a consumer without a message.
	WaitingConsumer = client.WaitingConsumer
	// BreakerStatus is the state of the circuit breaker of a destination.
	BreakerStatus = client.BreakerStatus
)

// Seek is a change of the position of a subscription.
type Seek struct {
	// To is latest, earliest, a time in RFC 3339, or "offset" with Offsets.
	To string
	// Topic and Partition limit the change; empty and -1 mean all.
	Topic     string
	Partition int32
	// Offset is used with To "offset", which requires Topic and Partition.
	Offset int64
}

// Purge removes waiting and deferred messages.
type Purge struct {
	// Before limits it to records that were written before this time; zero means now.
	Before time.Time
	// DryRun counts only.
	DryRun bool
}

// Service is the interface that the HTTP API and the command line use. An implementation is
// safe for concurrent use. Errors wrap ErrNotFound, ErrVersion or ErrUnavailable where they
// apply; other errors name fields of the request.
type Service interface {
	// Put creates or replaces a subscription and returns it as stored. A Version other
	// than 0 must be the stored one, and with Absent there must be none. The principal is recorded.
	Put(ctx context.Context, s Subscription, principal string) (Subscription, error)
	Get(ctx context.Context, name string) (Subscription, error)
	List(ctx context.Context) ([]Subscription, error)
	// Delete removes the subscription, its positions and its stored messages. Its dead
	// letters stay.
	Delete(ctx context.Context, name string, version int64, principal string) error

	// Receive returns messages with leases. No messages within Wait, or until ctx ends, is
	// no error. It uses no goroutine, query or poll of its own while it waits.
	Receive(ctx context.Context, name string, r Receive) ([]Message, error)
	// Settle applies the actions, at most MaxReceipts, and returns a Result for each, in
	// order. CodeOK means that the result is durable.
	Settle(ctx context.Context, name string, actions []Settle) ([]Result, error)

	Status(ctx context.Context, name string) (Status, error)
	// Progress returns the state of the message at a place, which the subscription selects.
	Progress(ctx context.Context, name string, at Place) (Progress, error)
	// Leases returns up to limit leases, at most MaxLeases, behind a cursor.
	Leases(ctx context.Context, name, cursor string, limit int) (LeasePage, error)
	// EndLease ends a lease for an operator; its receipt is refused from then on. ActionRelease
	// does not count the delivery, and the message can be delivered again immediately;
	// ActionReject makes the message a dead letter. The error wraps ErrLeaseEnded if there is no
	// such lease.
	EndLease(ctx context.Context, name string, lease LeaseID, action Action, principal string) error
	// Pause and Resume change Subscription.Paused.
	Pause(ctx context.Context, name string, principal string) error
	Resume(ctx context.Context, name string, principal string) error
	// AcknowledgeSkips notes that the principal has taken notice of the skips, which ends their
	// problem on /readyz.
	AcknowledgeSkips(ctx context.Context, name, principal string) error
	// Seek ends all leases of the partitions concerned and moves their positions. Stored
	// messages of these partitions are removed. An offset that the partition does not have is
	// refused.
	Seek(ctx context.Context, name string, s Seek, principal string) error
	// Purge returns the number of messages that it settled, or would settle.
	Purge(ctx context.Context, name string, p Purge, principal string) (int64, error)
}
