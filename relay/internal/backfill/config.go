package backfill

import (
	"log/slog"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
)

// Config configures scans of the outbox table and repairs. All fields are required
// except those documented as optional; relay.Config documents the fields of the same
// name.
type Config struct {
	Session                        *gocql.Session
	Name, ShardName                string
	Keyspace, TableKeyspace, Table string
	Fence                          fence.Fence // optional
	Auto                           bool        // scan for events that the CDC log has lost
	From                           time.Time   // zero: no scan is requested
	RowsPerSecond                  int         // not positive: no limit
	FirstAge, ConfidenceWindow     time.Duration
	ReadBackMargin                 time.Duration // negative: nothing is read back
	Share                          *dedup.Share  // of relay.Config.MaxAggregates
	Topics                         map[string]string
	RetryMin, ReplayPoll           time.Duration
	Logger                         *slog.Logger
	Clock                          *dbclock.Clock
	// Report receives each gap of the CDC log, once.
	Report func(Gap)
	// Open is the gap that former passes of the relay have left.
	Open *OpenGap
}
