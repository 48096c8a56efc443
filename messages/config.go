package messages

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

// Defaults of Config.
const (
	DefaultMaxMessageBytes = 256 << 10
	DefaultMaxBatchBytes   = 8 << 20
	DefaultAttemptTimeout  = 3 * time.Second
	DefaultWriteBudget     = 10 * time.Second
	DefaultRetryAfter      = 2 * time.Second
)

// DefaultTopics returns the default of Config.Topics: the topic of the examples.
func DefaultTopics() []string { return []string{"reminders"} }

// MaxStoredBytes is the maximum of Config.MaxMessageBytes with a store of payloads. Each
// request holds its whole body in memory.
const MaxStoredBytes = 16 << 20

// MaxBatch is the maximum size of a batch.
const MaxBatch = 1000

// Breaker configures the circuit breaker of the database. A Limiter bounds how many
// messages are stored and read concurrently.
type (
	Breaker = guard.Breaker
	Limiter = guard.Limiter
)

// Config configures a Service. The zero value is usable.
type Config struct {
	// Topics are patterns of the topics that accept messages; * matches any
	// characters. Default: DefaultTopics. Topics that begin with _ are never
	// allowed: they belong to the broker.
	Topics []string
	// Reserved are patterns of topics that only their exact names in Topics allow,
	// not a pattern: the relay's own topics and its control topics. A
	// message there would look like an event of another source. Default: none.
	Reserved []string
	// MaxMessageBytes bounds payload, key and headers of one message. Default 256
	// KiB, at most outbox.MaxEventBytes, or MaxStoredBytes with Payloads.
	MaxMessageBytes int
	// Payloads stores the payload of a message that is larger than
	// outbox.MaxEventBytes; its event has the reference. Default: none.
	Payloads payload.Store
	// MaxBatchBytes bounds the body of a batch. Default 8 MiB, or MaxMessageBytes if
	// that is more.
	MaxBatchBytes int64
	// MessagesPerSecond is the quota of one client; bursts may have twice as many, or
	// one full batch. Default 0: unlimited.
	MessagesPerSecond float64
	// Breaker configures the circuit breaker of the database.
	Breaker Breaker
	// Limiter is shared by services that use one database. A batch takes one place
	// per message, up to half of all places. Default: a new one.
	Limiter *Limiter

	// Consistency is that of reads and writes. Default LOCAL_QUORUM; LOCAL_QUORUM,
	// QUORUM or ALL.
	Consistency gocql.Consistency
	// AttemptTimeout bounds one statement. Default 3 s.
	AttemptTimeout time.Duration
	// WriteBudget bounds the retries of a write until its outcome is known.
	// Default 10 s; at least AttemptTimeout.
	WriteBudget time.Duration
	// RetryAfter is the Retry-After of responses while the database is
	// unavailable. Default 2 s.
	RetryAfter time.Duration

	// DeadLetters finds dead letters. Default: none.
	DeadLetters DeadLetters
	// Finder finds records in topics. Default: finds none, so that messages stay
	// queued.
	Finder Finder
	// Schemas checks payloads against the schemas of their topics. Default: none.
	Schemas *registry.Registry
	// Hints are sent for each message that was stored for immediate delivery.
	// Default: none.
	Hints Hints
	// Logger receives failures of the database, at Warn. Default discards.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: no metrics are registered.
	Registerer prometheus.Registerer
	// Clock is the clock. Default that of the host.
	Clock clocks.Clock
}

// Hints prompt relays to read a new event immediately. A hint.Sender sends them.
type Hints interface {
	// Committed is called from any goroutine; it must not block.
	Committed(aggregate outbox.ID)
}

func (c Config) withDefaults() Config {
	if len(c.Topics) == 0 {
		c.Topics = DefaultTopics()
	}
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, DefaultMaxMessageBytes)
	c.MaxBatchBytes = cmp.Or(c.MaxBatchBytes, max(DefaultMaxBatchBytes, int64(c.MaxMessageBytes)))
	c.Breaker = c.Breaker.WithDefaults()
	c.Consistency = cmp.Or(c.Consistency, gocql.LocalQuorum)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, DefaultAttemptTimeout)
	c.WriteBudget = cmp.Or(c.WriteBudget, max(DefaultWriteBudget, c.AttemptTimeout))
	c.RetryAfter = cmp.Or(c.RetryAfter, DefaultRetryAfter)
	if c.DeadLetters == nil {
		c.DeadLetters = noDeadLetters{}
	}
	if c.Finder == nil {
		c.Finder = noFinder{}
	}
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
	for _, p := range slices.Concat(c.Topics, c.Reserved) {
		if _, err := path.Match(p, "x"); err != nil || p == "" {
			errs = append(errs, fmt.Errorf("topics %q: is no pattern; write names, with * for any characters", p))
		}
	}
	limit, more := outbox.MaxEventBytes, "; more needs a store of payloads"
	if c.Payloads != nil {
		limit, more = MaxStoredBytes, ""
	}
	if c.MaxMessageBytes < 1 || c.MaxMessageBytes > limit {
		errs = append(errs, fmt.Errorf("max message bytes %d: must be from 1 to %d%s", c.MaxMessageBytes, limit, more))
	}
	if c.MaxBatchBytes < int64(c.MaxMessageBytes) {
		errs = append(errs, fmt.Errorf("max batch bytes %d: must not be below max message bytes, %d", c.MaxBatchBytes, c.MaxMessageBytes))
	}
	if c.MessagesPerSecond < 0 {
		errs = append(errs, fmt.Errorf("quota of %g messages a second: must not be negative; 0 is no quota", c.MessagesPerSecond))
	}
	errs = append(errs, c.Breaker.Validate())
	switch c.Consistency {
	case gocql.LocalQuorum, gocql.Quorum, gocql.All:
	default:
		errs = append(errs, fmt.Errorf("consistency %s: use LOCAL_QUORUM, QUORUM or ALL", c.Consistency))
	}
	if c.AttemptTimeout <= 0 || c.RetryAfter <= 0 || c.WriteBudget < c.AttemptTimeout {
		errs = append(errs, fmt.Errorf("attempt timeout %s, write budget %s, retry after %s: must be positive, and the budget not below the timeout",
			c.AttemptTimeout, c.WriteBudget, c.RetryAfter))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("messages config: %w", err)
	}
	return nil
}
