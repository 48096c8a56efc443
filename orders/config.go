package orders

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
)

// Defaults of Config.
const (
	DefaultConsistency    = gocql.LocalQuorum
	DefaultAttemptTimeout = 3 * time.Second
	DefaultWriteBudget    = 10 * time.Second
	DefaultRetryAfter     = 2 * time.Second
	DefaultRepairAfter    = 30 * time.Second
	DefaultRepairWindow   = 6 * 24 * time.Hour
)

// Breaker is when the database is not asked for a while, and Load what is done
// at once: a request to orders takes one place.
type (
	Breaker = guard.Breaker
	Load    = guard.Load
)

// Config is how a Service behaves. The zero value is usable.
type Config struct {
	// Consistency is that of plain reads and writes, and of the commit of
	// conditional ones. Default LOCAL_QUORUM; LOCAL_QUORUM, QUORUM or ALL. A
	// weaker write could leave a CDC row on one replica for good.
	Consistency gocql.Consistency
	// SerialConsistency decides among concurrent cancellations and owners of an
	// Idempotency-Key. Default SERIAL. LOCAL_SERIAL is faster and right only if
	// all writers of the keyspace are in one data centre.
	SerialConsistency gocql.Consistency

	// AttemptTimeout bounds one statement or batch. Default 3 s; positive. It
	// should exceed the server's write timeout (2 s), which knows more.
	AttemptTimeout time.Duration
	// WriteBudget bounds how long a change is repeated and read back until its
	// outcome is known. Default 10 s; at least AttemptTimeout.
	WriteBudget time.Duration
	// RetryAfter is what a caller is told to wait when the database is away.
	// Default 2 s; positive.
	RetryAfter time.Duration

	// RepairAfter is how old an order without its event must be before a reader
	// takes its writer for dead and writes the event. Default 30 s; at least
	// WriteBudget.
	RepairAfter time.Duration
	// RepairWindow is up to what age an order without its event is repaired; an
	// older one has outlived its outbox row. Default 6 days; below the row TTL of
	// the outbox table.
	RepairWindow time.Duration

	// Breaker is when the database is not asked for a while.
	Breaker Breaker
	// Load bounds what is done at once.
	Load Load

	// Logger gets repairs at Info and unknown outcomes at Warn. Default discards.
	Logger *slog.Logger
	// Registerer gets the metrics. Default: they are kept nowhere.
	Registerer prometheus.Registerer
	// Committed is told of each order of which an event was just stored, from
	// any goroutine and before the caller has its answer, so it must not wait. It
	// may make a relay look there at once. Default: nobody is told.
	Committed func(aggregate gocql.UUID)
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	// Zero is ANY, which no write here may use.
	c.Consistency = cmp.Or(c.Consistency, DefaultConsistency)
	c.SerialConsistency = cmp.Or(c.SerialConsistency, gocql.Serial)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, DefaultAttemptTimeout)
	c.WriteBudget = cmp.Or(c.WriteBudget, DefaultWriteBudget)
	c.RetryAfter = cmp.Or(c.RetryAfter, DefaultRetryAfter)
	c.RepairAfter = cmp.Or(c.RepairAfter, max(DefaultRepairAfter, c.WriteBudget))
	c.RepairWindow = cmp.Or(c.RepairWindow, DefaultRepairWindow)
	c.Breaker, c.Load = c.Breaker.WithDefaults(), c.Load.WithDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Committed == nil {
		c.Committed = func(gocql.UUID) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
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
	if c.RepairWindow < c.RepairAfter {
		errs = append(errs, fmt.Errorf("repair window %s: must not be below repair after, %s", c.RepairWindow, c.RepairAfter))
	}
	errs = append(errs, c.Breaker.Validate(), c.Load.Validate())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("orders config: %w", err)
	}
	return nil
}
