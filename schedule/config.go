package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
)

// Defaults of Config.
const (
	DefaultPoll        = 50 * time.Millisecond
	DefaultLookAhead   = 2 * time.Second
	DefaultSweep       = 15 * time.Second
	DefaultMaxPending  = 10_000
	DefaultConcurrency = 64
	DefaultRate        = 5000
	DefaultLease       = 10 * time.Second
)

// CloseAfter is how long after its end a minute is still looked at: longer than
// a batch that timed out can take to turn up.
const CloseAfter = 10 * time.Minute

// Config is how a Scheduler behaves. Only Store is needed.
type Config struct {
	// Store is where the messages are.
	Store *Store
	// Poll is the wait between two looks at what is due almost at once. Default 50
	// ms. A message with a shorter delay can be that much late.
	Poll time.Duration
	// LookAhead is how long before its time a message is read, at most; every half
	// of it is looked that far. Default 2 s; at least Poll.
	LookAhead time.Duration
	// Sweep is the time between two looks at all that should be out by now.
	// Default 15 s; at least Poll.
	Sweep time.Duration
	// MaxPending bounds the messages in memory, some 100 bytes each: the rest
	// stays in the database. Default 10,000.
	MaxPending int
	// Concurrency is how many messages are released side by side. Default 64.
	Concurrency int
	// Rate is how many are released per second at most, as after an outage.
	// Default 5,000.
	Rate int
	// Lease is after how long another scheduler takes over from one that died.
	// Default 10 s; at least 3 s.
	Lease time.Duration
	// Owner names this scheduler in the lease. Default: host, process and a random id.
	Owner string
	// Committed is told of each message that was handed to the outbox, from any
	// goroutine; it must not wait. Default: nobody is told.
	Committed func(aggregate gocql.UUID)
	// Now is the clock by which messages are due. Default time.Now.
	Now func() time.Time
	// Logger gets what fails, at Warn. Default discards.
	Logger *slog.Logger
	// Registerer gets the metrics. Default: they are kept nowhere.
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
		c.Committed = func(gocql.UUID) {}
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
		errs = append(errs, fmt.Errorf("%d pending, %d at once, %d per second: must be at least %d, 1 and 1", c.MaxPending, c.Concurrency, c.Rate, shards))
	}
	if c.Lease < 3*time.Second {
		errs = append(errs, fmt.Errorf("lease %s: must be at least 3s", c.Lease))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("schedule config: %w", err)
	}
	return nil
}
