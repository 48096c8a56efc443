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

// Values of Settings.Tail.
const (
	TailOn  = "on"
	TailOff = "off"
)

// Settings configure the readers, see package settings for the tags. Delays without a
// further bound are positive.
type Settings struct {
	// Tail is TailOn or TailOff. The tail reader reads new log rows immediately, so events are
	// published within milliseconds; without it they are published after the confidence window.
	// The guarantees of the relay are the same.
	Tail string `default:"on" oneof:"on off"`
	// TailMinInterval is the interval between two reads by the tail reader of a stream with new
	// rows, TailMaxInterval that of an idle stream. TailHintInterval is the least wait after a
	// read for hints: it gathers hints that come in quick succession.
	TailMinInterval  time.Duration `default:"3ms" min:"1ns"`
	TailHintInterval time.Duration `default:"200us" min:"1ns"`
	TailMaxInterval  time.Duration `setting:"tail_max_interval" default:"100ms" off:"-1" min:"1ms" field:"Tail" usage:"wait between two reads by the tail reader of streams that had no rows; above 100ms those with rows or hints, which are otherwise read within milliseconds, wait 3 % of it, which spares the database; off leaves events to the sweep reader"`
	// TailOverlap is how far back the tail reader reads again for rows that became visible late;
	// the sweep reader finds later ones.
	TailOverlap time.Duration `default:"2s" min:"1ns"`
	// TailReorder is how long the tail reader holds an event of a table without sequence
	// numbers for an earlier event of its aggregate that becomes visible later, as with
	// concurrent writes by writers with different clocks. A row of a writer that awaits each
	// acknowledgement may take twice TailOverlap, and in streams with few rows
	// ConfidenceWindow. A row that arrives later still is published late and counted.
	// TailReorder adds to the latency. -1 holds nothing; order is then kept only among rows
	// that become visible in the order of their write times.
	TailReorder time.Duration `default:"20ms" off:"-1"`
	// TailMaxQueriesPerSecond limits the queries of the tail readers of a process; each reads
	// up to 100 streams.
	TailMaxQueriesPerSecond float64 `default:"1000" min:"0.001"`

	// ConfidenceWindow: an earlier change may not be visible before. If it is too short, the
	// sweep reader misses rows that become visible late. A batch that timed out is replayed up
	// to 65 s later.
	ConfidenceWindow time.Duration `setting:"confidence_window" default:"2m" min:"1ms" usage:"how old a change must be before the sweep reader reads it; less than 2m can lose rows that become visible late on a cluster"`
	// QueryWindow is the maximum time range of one query of the log; it only matters while the
	// relay lags.
	QueryWindow time.Duration `default:"1h" min:"1ns"`
	// BusyDelay is the wait between two reads of streams that had rows.
	BusyDelay time.Duration `default:"1s" min:"1ns"`
	// IdleDelay is the wait between two reads of streams that had none. A longer one than the
	// default also makes the relay look less often for new generations and at the database's
	// clock and the table's schema.
	IdleDelay time.Duration `default:"5s" min:"1ns"`
	// GenerationDelay is how often the relay checks for a new generation of streams.
	GenerationDelay time.Duration `default:"15s" min:"1ns"`
	// FirstAge is how far back a relay without checkpoints starts. The log contains no more
	// than the CDC ttl of the table.
	FirstAge time.Duration `default:"72h" min:"1ns"`
	// GapWait is how long an event waits for a missing earlier event of its aggregate, while
	// the relay looks that up by key; -1 does not wait.
	GapWait time.Duration `default:"5s" off:"-1"`
	// IdleCheckpoint is how often checkpoints that advanced without events are saved.
	IdleCheckpoint time.Duration `default:"1m" min:"1ns"`
}

// Config configures the readers. All fields are set.
type Config struct {
	Settings
	Session              *gocql.Session // of Sweep and Quiet
	Clock                *dbclock.Clock
	TableKeyspace, Table string
	TailLimiter          *rate.Limiter // of queries; the tail readers of a process share it
	Turns                *Turns        // of tail and sweep reader; nil if the latter does not yield
	MaxInFlightRecords   int
	MaxInFlightBytes     int64
	RetryMin             time.Duration
	Logger               *slog.Logger
}

// Input is the table that the readers read, or the part of it that a shard has.
type Input struct {
	Table       *outbox.Table
	Own         *cdclog.Portion    // nil for the whole table
	Generations cdclog.Generations // with the streams of Own alone
	Lookup      cdclog.Lookup
	TTL         time.Duration // of the log's rows; 0 if they do not expire
}
