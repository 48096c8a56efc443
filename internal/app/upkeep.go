package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	_ "github.com/scylla-outbox/scylla-outbox/dlq/archive/cloud"
	"github.com/scylla-outbox/scylla-outbox/dlq/notifications"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// Upkeep does the tasks that one process does for all: it sends notifications about dead
// letters, archives or deletes old ones, and trims their lists.
type Upkeep struct {
	store   *dlq.Store
	log     *slog.Logger
	watcher *notifications.Watcher
	sweeper *archive.Sweeper
}

// NewUpkeep returns the upkeep. teardown closes its archive.
func NewUpkeep(ctx context.Context, c *Config, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger, teardown *daemon.Teardown) (*Upkeep, error) {
	store, err := dlq.Open(session, c.Scylla.Keyspace, append(c.DLQOptions(), dlq.WithLogger(log))...)
	if err != nil {
		return nil, cli.Usage(err)
	}
	n := &c.Notifications
	targets, err := notify.ParseTargets(n.Targets, n.WebhookSecrets)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("notifications.targets: %w", err))
	}
	u := &Upkeep{store: store, log: log}
	if u.watcher, err = notifications.New(notifications.Config{
		Store: store, Owner: self.Unique(), Delivery: notify.Config{Targets: targets}, ConsoleURL: n.ConsoleURL,
		Outages: relayOutages{session, c.Scylla.Keyspace},
		Backlog: n.Backlog, RatePerMinute: n.RatePerMinute, BlockedAge: n.BlockedAge,
		Logger: log, Registerer: reg,
	}); err != nil {
		return nil, cli.Usage(err)
	}
	var a *archive.Archive
	if c.Archive.URL != "" {
		if a, err = archive.Open(ctx, c.Archive.URL); err != nil {
			return nil, fmt.Errorf("archive.url: %w", err)
		}
		teardown.Add("archive", a.Close)
	}
	conf := c.Sweep(store, a)
	conf.Tables = &retainedTables{c, session}
	conf.Logger, conf.Registerer = log, reg
	if u.sweeper, err = archive.NewSweeper(conf); err != nil {
		return nil, cli.Usage(err)
	}
	return u, nil
}

// relayOutages implements notifications.Outages by the heartbeats of the relays.
type relayOutages struct {
	session  *gocql.Session
	keyspace string
}

// Current returns the outages of the broker that relays report.
func (r relayOutages) Current(ctx context.Context) ([]notifications.Outage, error) {
	outages, err := relay.Outages(ctx, r.session, r.keyspace, time.Now())
	out := make([]notifications.Outage, len(outages))
	for i, o := range outages {
		out[i] = notifications.Outage{Of: fmt.Sprintf("relay %s at %s", o.Relay, heartbeat.ProcessName(o.Instance)), Since: o.Since, Cause: o.Cause, Unreachable: o.Unreachable}
	}
	return out, err
}

// Readiness is that of the watcher, for /readyz of a process that has no other task.
func (u *Upkeep) Readiness() (bool, any) { return u.watcher.Readiness() }

// Run calls beside and runs the tasks until beside returns. Without dead letters u is nil and
// has no tasks.
func (u *Upkeep) Run(ctx context.Context, beside func(context.Context) error) error {
	if u == nil {
		return beside(ctx)
	}
	own, cancel := context.WithCancel(ctx)
	g, gctx := errgroup.WithContext(own)
	g.Go(func() error { return u.watcher.Run(gctx) })
	g.Go(func() error { u.tidy(gctx); return nil })
	g.Go(func() error { return u.sweeper.Run(gctx) })
	err := beside(ctx)
	cancel()
	return errors.Join(err, g.Wait())
}

// RowTTL returns the default TTL of a table; 0 is none. A subscription has no rows: its
// committed offset has passed the record of each dead letter, so a second suffices.
func RowTTL(ctx context.Context, session *gocql.Session, table string) (time.Duration, error) {
	if _, ok := dlq.ParseSubscription(table); ok {
		return time.Second, nil
	}
	keyspace, name := tableParts(table)
	var seconds int
	err := session.Query("SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", keyspace, name).
		WithContext(ctx).Scan(&seconds)
	if errors.Is(err, gocql.ErrNotFound) {
		return 0, nil // it may be restored from a backup later
	}
	return time.Duration(seconds) * time.Second, err
}

// tidyEvery is the interval between two trims of the lists of dead letters. The first is at a
// random time within tidyFirst of the start: processes that start together do not all do it
// at the same time, and one that is restarted often does it too.
const tidyEvery, tidyFirst = time.Hour, 10 * time.Minute

// tidy trims the lists until ctx ends.
func (u *Upkeep) tidy(ctx context.Context) {
	for wait := mathrand.N(tidyFirst); ; wait = tidyEvery {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		gone, err := u.store.Tidy(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			u.log.Warn("failed to trim the lists of dead letters; retrying in an hour", "err", err)
		case gone > 0:
			u.log.Debug("lists of dead letters trimmed", "hours", gone)
		}
	}
}
