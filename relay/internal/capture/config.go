package capture

import (
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Config configures the readers. All fields are set; relay.Config documents the fields of
// the same name.
type Config struct {
	Session              *gocql.Session // of Sweep and Quiet
	Clock                *dbclock.Clock
	TableKeyspace, Table string

	ConfidenceWindow, QueryWindow time.Duration
	BusyDelay, IdleDelay          time.Duration
	GenerationDelay, FirstAge     time.Duration
	GapWait, IdleCheckpoint       time.Duration

	TailMinInterval, TailMaxInterval time.Duration
	TailOverlap, TailReorder         time.Duration
	TailLimiter                      *rate.Limiter // of queries; the tail readers of a process share it

	MaxInFlightRecords int
	MaxInFlightBytes   int64
	RetryMin           time.Duration
	Logger             *slog.Logger
}

// Input is the table that the readers read, or the part of it that a shard has.
type Input struct {
	Table       *outbox.Table
	Own         *cdclog.Portion    // nil for the whole table
	Generations cdclog.Generations // with the streams of Own alone
	Lookup      cdclog.Lookup
}
