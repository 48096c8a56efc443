package capture

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/swept"
)

// Sink accepts the events that the readers find. *publish.Publisher implements it, with
// SweepSink and TailSink. Its methods are safe for concurrent use.
type Sink interface {
	earlier.Evidence
	// Offer accepts an event if it is next in its aggregate.
	Offer(ctx context.Context, o publish.Offer) (publish.Verdict, error)
	// OfferPage is Offer of each event until one fails, and appends the verdicts about them.
	OfferPage(ctx context.Context, offers []publish.Offer, verdicts []publish.Verdict) ([]publish.Verdict, error)
	// Submit accepts an event that the caller knows to be next in its aggregate.
	Submit(ctx context.Context, e cdclog.StoredEvent, by publish.Source, settled publish.Settlement) error
	// Expect returns the next number of an aggregate, and whether the aggregate is known.
	Expect(aggregate gocql.UUID) (next int64, known bool)
	// Resolve ends the doubt about the numbers of an aggregate that continues with next.
	Resolve(of *outbox.Event, next int64)
	// FindGaps offers events of skipped numbers before seq that became visible since.
	FindGaps(ctx context.Context, find cdclog.Lookup, of *outbox.Event, seq int64) error
	// MemoryUse returns how many published events the sweep reader has not read, and how many
	// there may be before the tail reader waits for it.
	MemoryUse() (events, limit int, near bool)
	// Swept returns the tracker of the tail reader's activity.
	Swept() *swept.Tracker
}

// SweepSink is the sink of the sweep reader.
type SweepSink interface {
	Sink
	// ClaimPassed keeps other readers from the aggregate until release.
	ClaimPassed(ctx context.Context, find cdclog.Lookup, aggregate outbox.ID) (release func(), err error)
	// Begins sets the next number of an unknown aggregate.
	Begins(aggregate gocql.UUID, next int64)
	// Missing returns how many of the last numbers of an aggregate are missing.
	Missing(aggregate gocql.UUID) int
}

// TailSink is the sink of the tail reader.
type TailSink interface {
	Sink
	// TryClaimPassed is ClaimPassed without waiting; release is nil if another reader has
	// the claim.
	TryClaimPassed(ctx context.Context, find cdclog.Lookup, aggregate outbox.ID) (release func(), err error)
	// MemoryFull reports whether the tail reader has to wait for the sweep reader.
	MemoryFull() bool
}

var _ interface {
	SweepSink
	TailSink
} = (*publish.Publisher)(nil)
