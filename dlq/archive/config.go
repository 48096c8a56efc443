package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Defaults of Config.
const (
	DefaultResolved = 30 * 24 * time.Hour
	DefaultFailed   = 90 * 24 * time.Hour
	DefaultKeep     = 365 * 24 * time.Hour
	DefaultInterval = time.Hour
	DefaultRate     = 200
)

// Config of a Sweeper. Zero means default.
type Config struct {
	// Store and Archive are required.
	Store   *dlq.Store
	Archive *Archive
	// Resolved is how long a resolved letter stays in the database, from its
	// resolution on; Failed the same of a failed one, from its last failure on. -1
	// leaves them there for good. Letters with another status always stay, and so
	// does a failed one as long as others are parked behind it.
	Resolved, Failed time.Duration
	// Keep is how long objects stay in the archive, and outlines in the database;
	// -1 is for good.
	Keep time.Duration
	// Interval is how often the database is swept; Rate how many letters a second
	// are read at most.
	Interval time.Duration
	Rate     float64
	// Owner names the process; required.
	Owner string
	// RowTTL is how long an outbox table, "keyspace.table", keeps its rows; 0 is for
	// good. The outline of a letter stays for as long as the event's row may. nil
	// means for good.
	RowTTL func(ctx context.Context, table string) (time.Duration, error)
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&c.Resolved, DefaultResolved)
	or(&c.Failed, DefaultFailed)
	or(&c.Keep, DefaultKeep)
	or(&c.Interval, DefaultInterval)
	if c.Rate == 0 {
		c.Rate = DefaultRate
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c *Config) validate() error {
	var errs []error
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"resolved", c.Resolved}, {"failed", c.Failed}, {"keep", c.Keep}} {
		if d.v != -1 && d.v < minAge {
			errs = append(errs, fmt.Errorf("%s %s: must be at least %s, or -1 for good", d.name, d.v, minAge))
		}
	}
	if c.Interval < time.Second {
		errs = append(errs, fmt.Errorf("interval %s: must be at least a second", c.Interval))
	}
	if c.Rate < 1 {
		errs = append(errs, fmt.Errorf("rate %v: must be at least 1 letter a second", c.Rate))
	}
	if c.Store == nil || c.Archive == nil || c.Owner == "" {
		errs = append(errs, errors.New("a store, an archive and an owner are required"))
	}
	return errors.Join(errs...)
}
