package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Defaults of Config.
const (
	DefaultPoll        = 50 * time.Millisecond
	DefaultLookAhead   = 2 * time.Second
	DefaultSweep       = 15 * time.Second
	DefaultMaxPending  = 10_000
	DefaultConcurrency = 512
	DefaultRate        = 100_000
	DefaultLease       = 10 * time.Second
)

// CloseAfter is how long a minute is still scanned after its end: longer than a
// batch with a timeout can take to become visible.
const CloseAfter = 10 * time.Minute

// Config configures a Scheduler. Only Store is required.
type Config struct {
	// Store is where the messages are.
	Store *Store
	// Poll is the interval of scans for messages that are due soon. Default 50 ms.
	// A message with a shorter delay can be that late.
	Poll time.Duration
	// LookAhead is how early a message is read into memory; the scheduler scans
	// that far every half of it. Default 2 s; at least Poll.
	LookAhead time.Duration
	// Sweep is the interval of scans for all messages that are due. Default 15 s;
	// at least Poll.
	Sweep time.Duration
	// MaxPending bounds the messages in memory, about 100 bytes each; the others
	// stay in the database. Default 10,000.
	MaxPending int
	// Concurrency is the number of concurrent releases. Default 512.
	Concurrency int
	// Rate bounds the releases per second, for example after an outage. Default
	// 100,000. The scheduler releases fewer while Lag grows.
	Rate int
	// Lag returns how long the relay that publishes the messages takes at the moment to
	// read a new row of the outbox, false if that is unknown. The scheduler releases
	// fewer messages, but never none, while it is above 20 ms. It must not block. Default: unknown,
	// and 5,000 releases per second at most.
	Lag func() (time.Duration, bool)
	// Lease is the time after which another scheduler replaces a failed one.
	// Default 10 s; at least 3 s.
	Lease time.Duration
	// Owner names this scheduler in the lease. Default: host, process and a random id.
	Owner string
	// Committed is called with each message that was written to the outbox, from
	// any goroutine; it must not block. Default: not called.
	Committed func(aggregate outbox.ID)
	// Now is the clock of this host, which the scheduler compares with that of the database:
	// messages are due, and their outbox rows dated, by the latter. Default time.Now.
	Now func() time.Time
	// Logger receives failures, at Warn. Default discards.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: no metrics are registered.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	c.Poll = cmp.Or(c.Poll, DefaultPoll)
	c.LookAhead = cmp.Or(c.LookAhead, max(DefaultLookAhead, c.Poll))
	c.Sweep = cmp.Or(c.Sweep, max(DefaultSweep, c.Poll))
	c.MaxPending = cmp.Or(c.MaxPending, DefaultMaxPending)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.Rate = cmp.Or(c.Rate, DefaultRate)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	if c.Owner == "" {
		c.Owner = self.Unique()
	}
	if c.Committed == nil {
		c.Committed = func(outbox.ID) {}
	}
	if c.Lag == nil {
		c.Lag = func() (time.Duration, bool) { return 0, false }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("store: is missing"))
	}
	if c.Poll <= 0 {
		errs = append(errs, fmt.Errorf("poll %s: must be positive", c.Poll))
	}
	if c.LookAhead < c.Poll || c.LookAhead > time.Minute {
		errs = append(errs, fmt.Errorf("look-ahead %s: must be from %s, the poll, to 1m", c.LookAhead, c.Poll))
	}
	if c.Sweep < c.Poll {
		errs = append(errs, fmt.Errorf("sweep %s: must not be below the poll, %s", c.Sweep, c.Poll))
	}
	if c.MaxPending < shards || c.Concurrency < 1 || c.Rate < 1 {
		errs = append(errs, fmt.Errorf("%d pending, %d concurrent, %d per second: must be at least %d, 1 and 1", c.MaxPending, c.Concurrency, c.Rate, shards))
	}
	if c.Lease < 3*time.Second {
		errs = append(errs, fmt.Errorf("lease %s: must be at least 3s", c.Lease))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("schedule config: %w", err)
	}
	return nil
}
