package orders

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Defaults of Config.
const (
	DefaultConsistency    = gocql.LocalQuorum
	DefaultAttemptTimeout = 3 * time.Second
	DefaultWriteBudget    = 10 * time.Second
	DefaultRetryAfter     = 2 * time.Second
	DefaultRepairAfter    = 30 * time.Second
	DefaultRowTTL         = 7 * 24 * time.Hour
)

// Breaker configures the circuit breaker of the database. A Limiter bounds the
// concurrent work at the database; a request to orders takes one place.
type (
	Breaker = guard.Breaker
	Limiter = guard.Limiter
)

// Config configures a Service. The zero value is usable.
type Config struct {
	// Consistency is the consistency level of plain reads and writes, and of the
	// commit of conditional ones: LOCAL_QUORUM, QUORUM or ALL. Default
	// LOCAL_QUORUM. A weaker write could leave a CDC row on a single replica.
	Consistency gocql.Consistency
	// SerialConsistency decides among concurrent cancellations and owners of an
	// Idempotency-Key. Default SERIAL. LOCAL_SERIAL is faster and right only if
	// all writers of the keyspace are in one data centre.
	SerialConsistency gocql.Consistency

	// AttemptTimeout bounds one statement or batch. Default 3 s; positive. It
	// should exceed the write timeout of the server (2 s), whose errors are more
	// precise.
	AttemptTimeout time.Duration
	// WriteBudget bounds the retries and reads of a change until its outcome is
	// known. Default 10 s; at least AttemptTimeout.
	WriteBudget time.Duration
	// RetryAfter is the Retry-After of responses while the database is
	// unavailable. Default 2 s; positive.
	RetryAfter time.Duration

	// RepairAfter is the minimum age of an order without its event before a reader
	// assumes that its writer has failed and writes the event. Default 30 s; at
	// least WriteBudget.
	RepairAfter time.Duration
	// RowTTL is how long the outbox keeps the rows of events. Default 7 days; a shorter time than
	// the real one is safe.
	RowTTL time.Duration

	// Schemas checks the payload of an event against the schema of its topic before the
	// event is stored. Default: none.
	Schemas *registry.Registry
	// Publication describes the topics of the events, for Schemas and /asyncapi.json. Its Brokers
	// are shown to every caller.
	Publication Publication

	// Breaker configures the circuit breaker of the database.
	Breaker Breaker
	// Limiter is shared by services that use one database. Default: a new one.
	Limiter *Limiter

	// Logger gets repairs at Info and unknown outcomes at Warn. Default discards.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: no metrics are registered.
	Registerer prometheus.Registerer
	// Hints are sent for each order whose event was just stored. Default: none.
	Hints Hints
	// Clock is the clock. Default that of the host.
	Clock clocks.Clock
}

// Hints prompt relays to read a new event immediately. A hint.Sender sends them.
type Hints interface {
	// Committed is called from any goroutine, before the caller of the service receives
	// its response, so it must not block.
	Committed(aggregate outbox.ID)
}

func (c Config) withDefaults() Config {
	// Zero is ANY, which no write here may use.
	c.Consistency = cmp.Or(c.Consistency, DefaultConsistency)
	c.SerialConsistency = cmp.Or(c.SerialConsistency, gocql.Serial)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, DefaultAttemptTimeout)
	c.WriteBudget = cmp.Or(c.WriteBudget, DefaultWriteBudget)
	c.RetryAfter = cmp.Or(c.RetryAfter, DefaultRetryAfter)
	c.RepairAfter = cmp.Or(c.RepairAfter, max(DefaultRepairAfter, c.WriteBudget))
	c.RowTTL = cmp.Or(c.RowTTL, DefaultRowTTL)
	c.Breaker = c.Breaker.WithDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	c.Clock = clocks.Or(c.Clock)
	return c
}

func (c Config) validate() error {
	var errs []error
	switch c.Consistency {
	case gocql.LocalQuorum, gocql.Quorum, gocql.All:
	default:
		errs = append(errs, fmt.Errorf("consistency %s: use LOCAL_QUORUM, QUORUM or ALL", c.Consistency))
	}
	if !c.SerialConsistency.IsSerial() {
		errs = append(errs, fmt.Errorf("serial consistency %s: use SERIAL or LOCAL_SERIAL", c.SerialConsistency))
	}
	positive := func(name string, d time.Duration) {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s %s: must be positive", name, d))
		}
	}
	positive("attempt timeout", c.AttemptTimeout)
	positive("retry after", c.RetryAfter)
	if c.WriteBudget < c.AttemptTimeout {
		errs = append(errs, fmt.Errorf("write budget %s: must not be below the attempt timeout of %s", c.WriteBudget, c.AttemptTimeout))
	}
	if c.RepairAfter < c.WriteBudget {
		errs = append(errs, fmt.Errorf("repair after %s: must not be below the write budget of %s", c.RepairAfter, c.WriteBudget))
	}
	positive("row TTL", c.RowTTL)
	errs = append(errs, c.Breaker.Validate())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("orders config: %w", err)
	}
	return nil
}

// repairWindow returns the maximum age of an order whose missing event is written: the row of an
// older event may have expired.
func (c Config) repairWindow() time.Duration { return max(c.RowTTL*6/7, c.RepairAfter) }
