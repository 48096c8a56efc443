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

// Config configures a Sweeper. Zero means the default.
type Config struct {
	// Store is required. Archive takes the dead letters whose retention has ended; nil
	// deletes them without a copy, except for their outlines.
	Store   *dlq.Store
	Archive *Archive
	// Resolved is the retention of a resolved dead letter in the database, from its
	// resolution; Failed that of a failed one, from its last failure. A restored one
	// begins again at the time of its restore. -1 means no end. Dead letters with
	// another status always remain, and so does a failed one that blocks others.
	Resolved, Failed time.Duration
	// Tables are the tables whose dead letters are stored. nil means that no table has a
	// retention of its own, and that rows have no end.
	Tables Tables
	// PayloadTable is the table, "keyspace.table", whose events have payloads in Archive.
	// Empty means that no payloads expire.
	PayloadTable string
	// Keep is the retention of objects in the archive, and of outlines in the database,
	// with or without an archive; -1 means no end.
	Keep time.Duration
	// Interval is the interval between sweeps; Rate limits the dead letters that are
	// read per second.
	Interval time.Duration
	Rate     float64
	// Owner names the process; required.
	Owner string
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Tables are the tables whose dead letters are stored, by name: "keyspace.table".
type Tables interface {
	// Retentions returns the tables whose resolved and failed dead letters have a
	// retention of their own, of at least an hour.
	Retentions(ctx context.Context) (map[string]time.Duration, error)
	// RowTTL returns the time to live of the rows of a table; 0 means no end. The outline
	// of a dead letter remains as long as the event's row may exist.
	RowTTL(ctx context.Context, table string) (time.Duration, error)
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
		errs = append(errs, fmt.Errorf("rate %v: must be at least 1 dead letter per second", c.Rate))
	}
	if c.Store == nil || c.Owner == "" {
		errs = append(errs, errors.New("a store and an owner are required"))
	}
	return errors.Join(errs...)
}
