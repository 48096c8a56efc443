package readback

import (
	"log/slog"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// Settings configure read-back, see package settings for the tags.
type Settings struct {
	// ReadBackMargin is the maximum difference between the clocks of writers, relays and
	// brokers. At its start the relay reads its topics back to the oldest checkpoint minus this
	// margin to find published events; this requires the right to read the topics. -1 does not
	// read back, so events are repeated after a crash.
	ReadBackMargin time.Duration `default:"30s" off:"-1"`
	// ReadBackQuiet is how long the topics must receive no record before the read-back ends:
	// the broker may still write records that a killed relay sent. A longer time is safer with
	// a slow broker, and delays every start.
	ReadBackQuiet time.Duration `default:"250ms" min:"1ns"`
}

// Config configures read-back and proofs. All fields are set.
type Config struct {
	Settings
	Source             string
	Table              string // with its keyspace, as in the records; empty is any
	Topics             map[string]string
	FirstAge           time.Duration
	MaxInFlightRecords int
	MaxRecordBytes     int32
	Share              *dedup.Share // of the dedup index
	RetryMin, RetryMax time.Duration
	Logger             *slog.Logger
	Clock              *dbclock.Clock // dates rows; nil is that of this host
}
