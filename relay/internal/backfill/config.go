package backfill

import (
	"log/slog"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
)

// Values of Settings.Backfill.
const (
	Auto = "auto"
	Off  = "off"
)

// Settings configure scans, see package settings for the tags.
type Settings struct {
	// Backfill is Auto or Off. With Auto, the relay scans the outbox table for events that the
	// log may not contain: after it was down for longer than the CDC log keeps rows, or at the
	// first start with a table that is older than its log. With Off, it logs that events are
	// missing.
	Backfill              string `setting:"backfill" default:"auto" oneof:"auto off" usage:"auto or off: scan the outbox table for events that the CDC log may not have any more, because the relay was away for longer than the log keeps its rows or starts for the first time"`
	BackfillRowsPerSecond int    `setting:"backfill_rows_per_second" default:"5000" off:"-1" usage:"rows that such a scan reads per second, at most; off does not bound it"`
}

// Config configures scans of the outbox table and repairs. All fields are required
// except those documented as optional.
type Config struct {
	Settings
	Session                        *gocql.Session
	Name, ShardName                string
	Keyspace, TableKeyspace, Table string
	Fence                          fence.Fence // optional
	From                           time.Time   // zero: no scan is requested
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

func (c *Config) auto() bool { return c.Backfill == Auto }
