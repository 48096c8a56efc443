package readback

import (
	"log/slog"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// Config configures read-back and proofs. All fields are set; relay.Config
// documents the fields of the same name.
type Config struct {
	Source             string
	Table              string // with its keyspace, as in the records; empty is any
	Topics             map[string]string
	FirstAge           time.Duration
	ReadBackMargin     time.Duration // negative: nothing is read back
	ReadBackQuiet      time.Duration
	MaxInFlightRecords int
	MaxRecordBytes     int32
	Share              *dedup.Share // of the dedup index
	RetryMin, RetryMax time.Duration
	Logger             *slog.Logger
	Clock              *dbclock.Clock // dates rows; nil is that of this host
}
