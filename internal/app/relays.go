package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// Relays are the relays of one shard, one for each table.
type Relays struct {
	names []string // of the tables
	all   []*relay.Relay
	// listed reports that the configuration lists the tables: log and readiness then
	// contain the name of the table.
	listed bool
}

// NewRelays makes the relays. They share the session and the registry; each metric has the
// labels relay and table.
func NewRelays(c *Config, confs []relay.Config, session *gocql.Session, log *slog.Logger, reg prometheus.Registerer) (*Relays, error) {
	out := &Relays{listed: len(c.Relay.Tables) > 0}
	for _, conf := range confs {
		name := TableName(&conf)
		conf.Session, conf.Logger = session, log
		conf.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"relay": c.Relay.Name, "table": name}, reg)
		if out.listed {
			conf.Logger = log.With("table", name)
		}
		r, err := relay.New(conf)
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("table %s: %w", name, InSettings(err)))
		}
		out.names, out.all = append(out.names, name), append(out.all, r)
	}
	return out, nil
}

// Reading reports that each tail reader has read once.
func (r *Relays) Reading() bool {
	return !slices.ContainsFunc(r.all, func(one *relay.Relay) bool { return one.Status().Tail.LastRead.IsZero() })
}

// Run runs all of them until ctx ends. A relay ends by itself only if it is
// wrongly set up; then all do, and the error names its table. A table that does not
// exist or does not match ends none of several.
func (r *Relays) Run(ctx context.Context) error {
	beats, stop := context.WithCancel(context.WithoutCancel(ctx))
	var beating sync.WaitGroup
	for _, one := range r.all {
		beating.Go(func() { one.Heartbeat(beats, cli.Version, 0) })
	}
	defer beating.Wait()
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for i, one := range r.all {
		g.Go(func() error {
			err := one.Run(ctx)
			if err != nil && r.listed {
				err = fmt.Errorf("table %s: %w", r.names[i], err)
			}
			return err
		})
	}
	return g.Wait()
}

// Readiness shows the status of all relays on /readyz. They are ready when each is.
func (r *Relays) Readiness() httpapi.Readiness {
	if !r.listed {
		return relayReadiness(r.all[0])
	}
	return func() (bool, any) {
		detail := struct {
			Ready  bool           `json:"ready"`
			Tables map[string]any `json:"tables"`
		}{true, make(map[string]any, len(r.all))}
		for i, one := range r.all {
			ready, d := relayReadiness(one)()
			detail.Ready, detail.Tables[r.names[i]] = detail.Ready && ready, d
		}
		return detail.Ready, detail
	}
}
