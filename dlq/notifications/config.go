package notifications

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/notify"
)

// Defaults of Config.
const (
	DefaultInterval       = 30 * time.Second
	DefaultGroupWindow    = 5 * time.Minute
	DefaultSamples        = 3
	DefaultBacklog        = 10_000
	DefaultRatePerMinute  = 100
	DefaultResolutionRate = 0.5
	DefaultBlockedAge     = time.Hour
	DefaultOutageAge      = 2 * time.Minute
	DefaultRepeat         = 4 * time.Hour
)

// Config configures a Watcher. Zero means the default; a limit of -1 turns its rule
// off.
type Config struct {
	// Store is required, and Owner, which names the process.
	Store *dlq.Store
	Owner string
	// ConsoleURL is the URL of the console, such as https://host/console; notices link
	// to it.
	ConsoleURL string
	// Interval is the interval between polls of the store.
	Interval time.Duration
	// GroupWindow is the least interval between two notices of new dead letters of one
	// error class and event type; -1 turns these notices off. Samples limits the dead
	// letters in a notice; -1 means none.
	GroupWindow time.Duration
	Samples     int
	// Backlog limits the open dead letters.
	Backlog int
	// RatePerMinute limits the new dead letters per minute, over a whole minute.
	RatePerMinute float64
	// ResolutionRate is the least share, from 0 to 1, of resolved dead letters among
	// the ones that failed first between 25 hours and one hour ago, if there are at
	// least 20.
	ResolutionRate float64
	// BlockedAge limits the time for which a dead letter is blocked.
	BlockedAge time.Duration
	// Outages are the outages of the broker that relays report; nil turns their rule off.
	// OutageAge is the age from which one is notified.
	Outages   Outages
	OutageAge time.Duration
	// Repeat is the interval at which a notice of a continuing condition is repeated;
	// -1 means never.
	Repeat time.Duration
	// Delivery is where and how notices are delivered. The data of a message is a dlq.Notice.
	Delivery notify.Config
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Outages returns the outages of the broker that relays report now.
type Outages interface {
	Current(ctx context.Context) ([]Outage, error)
}

// Outage is an outage of the broker.
type Outage struct {
	// Of names the relay that reports it.
	Of string
	// Since is the time of the first failure, Cause the last one. Unreachable reports that no
	// broker answers; otherwise one answers with errors.
	Since       time.Time
	Cause       string
	Unreachable bool
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (c Config) withDefaults() Config {
	or(&c.Interval, DefaultInterval)
	or(&c.GroupWindow, DefaultGroupWindow)
	or(&c.Samples, DefaultSamples)
	or(&c.Backlog, DefaultBacklog)
	or(&c.RatePerMinute, DefaultRatePerMinute)
	or(&c.ResolutionRate, DefaultResolutionRate)
	or(&c.BlockedAge, DefaultBlockedAge)
	or(&c.OutageAge, DefaultOutageAge)
	or(&c.Repeat, DefaultRepeat)
	or(&c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Store == nil || c.Owner == "" {
		bad("a store and an owner are required")
	}
	if c.Interval < time.Second {
		bad("interval %s: must be at least a second", c.Interval)
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"group window", c.GroupWindow}, {"blocked age", c.BlockedAge}, {"outage age", c.OutageAge}, {"repeat", c.Repeat}} {
		if d.v != -1 && d.v < time.Second {
			bad("%s %s: must be at least a second, or -1 for off", d.name, d.v)
		}
	}
	if c.Backlog < -1 || c.Samples < -1 || c.Samples > maxSamples {
		bad("backlog %d, samples %d: must not be below -1, and samples not above %d", c.Backlog, c.Samples, maxSamples)
	}
	if c.RatePerMinute < 0 && c.RatePerMinute != -1 {
		bad("rate %v per minute: must not be negative; -1 means off", c.RatePerMinute)
	}
	if c.ResolutionRate != -1 && (c.ResolutionRate < 0 || c.ResolutionRate > 1) {
		bad("resolution rate %v: write a share from 0 to 1, such as 0.5, or -1 for off", c.ResolutionRate)
	}
	if c.ConsoleURL != "" {
		if u, err := url.Parse(c.ConsoleURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			bad("console URL %q: write it as https://host/console", c.ConsoleURL)
		}
	}
	return errors.Join(errs...)
}

const maxSamples = 20
