package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// sweepPage is the page size of the sweep reader. The library reads the streams of each vnode
// by a separate query, all concurrently, and the driver prefetches the next page: with its
// default of 5,000 rows 256 streams would hold millions of rows.
const sweepPage = 100

// Components returns the components of the schema that the relay needs.
func (c *RelayConfig) Components() []schema.Component {
	if c.WriteDeadLetters {
		return []schema.Component{schema.Core, schema.DeadLetters}
	}
	return []schema.Component{schema.Core}
}

// AdminShutdown is the time that a scrape in progress may take when the process stops.
const AdminShutdown = 2 * time.Second

// RunRelay runs the relays of all configured tables, with upkeep and scheduler, until the
// command's context ends. It sets the process's soft memory limit, unless GOMEMLIMIT does.
// request is the time of relay.Config.BackfillFrom, zero for none, which is recorded in the
// audit trail.
func RunRelay(cmd *cobra.Command, c *Config, request BackfillRequest) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		go limitMemory(cmd.Context())
	}
	c.Scylla.pageSize = sweepPage
	var confs []relay.Config
	check := func(*slog.Logger) (err error) {
		if confs, err = c.RelayConfigs(); err != nil {
			return err
		}
		for i := range confs {
			confs[i].BackfillFrom = request.From
		}
		return checkRelays(confs)
	}
	c.Scylla.Need(c.Relay.Components()...)
	err := WithOps(cmd, c, check, func(ctx context.Context, session *gocql.Session, reg *prometheus.Registry, ops *OpsServer, log *slog.Logger, teardown *daemon.Teardown) error {
		if err := request.record(ctx, c, session, log); err != nil {
			return err
		}
		return carry(ctx, c, confs, cmd.ErrOrStderr(), session, reg, ops, log, teardown)
	})
	if errors.As(err, new(missingError)) {
		return cli.WithHint(err, "%s; relay.dead_letters: false needs none of them", cli.FindHint(err))
	}
	return err
}

// Carry relays until ctx ends; bar is where a backfill shows how far it is.
func carry(
	ctx context.Context, c *Config, confs []relay.Config, bar io.Writer, session *gocql.Session, reg *prometheus.Registry, ops *OpsServer, log *slog.Logger,
	teardown *daemon.Teardown,
) error {
	var hints net.PacketConn
	if c.Hints.Addr != "" {
		var err error
		hints, err = new(net.ListenConfig).ListenPacket(ctx, "udp", c.Hints.Addr)
		if err != nil {
			return cli.WithHint(fmt.Errorf("listen for hints on %s: %w", c.Hints.Addr, err), "hints.addr is host:port of this machine; empty accepts no hints")
		}
		teardown.Add("hints", hints.Close)
	}
	relays, err := NewSharing(c, confs, session, log, reg, hints)
	if err != nil {
		return err
	}
	// Tasks for the whole keyspace, which has none without their tables.
	var upkeep *Upkeep
	if c.Scylla.Has(schema.DeadLetters) {
		if upkeep, err = NewUpkeep(ctx, c, session, reg, log, teardown); err != nil {
			return err
		}
	}
	var scheduler *schedule.Scheduler
	if c.Scylla.Has(schema.Schedule) {
		if scheduler, err = NewScheduler(c, session, relays, reg, log); err != nil {
			return err
		}
	}
	ops.Works(relays.Readiness())
	log.Info("relay running", "relay", c.Relay.Name, "tables", tableNames(confs), "shards", c.Relay.Shards,
		"confidence_window", c.Relay.ConfidenceWindow, "ops", ops.URL, "hints", hintAddr(hints), "upkeep", upkeep != nil, "scheduler", scheduler != nil)
	stop := showBackfill(ctx, bar, relays.backfill)
	defer stop()
	err = upkeep.Run(ctx, func(ctx context.Context) error { return WithScheduler(ctx, scheduler, relays.Run) })
	if err == nil {
		log.Info("relay stopped", "cause", context.Cause(ctx))
	}
	return err
}

// hintAddr returns the address of the hint listener, empty for none.
func hintAddr(c net.PacketConn) string {
	if c == nil {
		return ""
	}
	return c.LocalAddr().String()
}

// relayReadiness returns the readiness of a relay for /readyz: its status, as in heartbeats, with the numbers
// of a scan, and without its rates and published_total, which are of the time between two heartbeats.
func relayReadiness(r *relay.Relay) httpapi.Readiness {
	return func() (bool, any) {
		h := r.Report(heartbeat.Running, cli.Version, time.Now())
		backfill := r.Status().Backfill
		return h.Ready, struct {
			*heartbeat.RelayStatus
			Backfill  any `json:"backfill,omitempty"`
			Rates     any `json:"rates,omitempty"`
			Published any `json:"published_total,omitempty"`
		}{RelayStatus: h, Backfill: backfillDetail(&backfill)}
	}
}

// NewRegistry returns a registry with the metrics of the Go runtime and the process, which runs
// the command.
func NewRegistry(command string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		cli.BuildInfo(command),
	)
	return reg
}
