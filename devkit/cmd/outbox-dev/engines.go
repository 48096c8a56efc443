package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/engines"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

func newEnginesCommand() *cobra.Command {
	var e engines.Engines
	cmd := &cobra.Command{
		Use:   "engines",
		Short: "Run the embedded engines alone: a ScyllaDB-compatible server and a Kafka broker",
		Long: `Run the embedded engines alone: a ScyllaDB-compatible CQL server (scyllafake)
and a Kafka broker (kfake). They are for trials and tests; do not use them in
production. Acknowledged writes survive a crash of the process, but not always
a crash of the machine.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			return app.Serving(cmd, c, func(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown) error {
				ctx = e.UntilFailed(ctx)
				if err := e.Start(teardown, log); err != nil {
					return err
				}
				log.Info("embedded engines running, not for production", "cql", e.CQLAddr, "kafka", e.KafkaAddr, "data", e.Dir, "metrics", e.MetricsURL)
				<-ctx.Done()
				log.Info("stopping", "cause", context.Cause(ctx))
				return e.Failure(ctx)
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&e.Dir, "data-dir", "", "data directory; empty keeps data in memory")
	f.StringVar(&e.CQLAddr, "cql-addr", "127.0.0.1:9042", "CQL address; empty disables the database")
	f.StringVar(&e.KafkaAddr, "kafka-addr", "", "Kafka address; empty disables the broker")
	f.StringVar(&e.Version, "scylla-version", scyllafake.DefaultVersion, "emulated release: 2026.1 or 2025.4 (tablets), or 5.1")
	f.BoolVar(&e.Vnodes, "vnodes", false, "create new keyspaces with vnodes, as 5.1 does, instead of tablets")
	f.IntVar(&e.Shards, "shards", scyllafake.DefaultShards, "shards of the node")
	f.IntVar(&e.Tokens, "tokens", scyllafake.DefaultTokens, "tokens (vnodes) of the node")
	f.DurationVar(&e.TabletInterval, "tablet-interval", time.Minute, "how often tables split and merge their tablets")
	f.BoolVar(&e.NodeCosts, "node-costs", false, "make requests to the database take the time that they were measured to take on a ScyllaDB node with these shards")
	f.IntVar(&e.Writes, "writes", 0, "writes that the database executes concurrently; 0 for no limit")
	f.DurationVar(&e.WriteTime, "write-time", 0, "duration of each of these writes")
	app.AddFlags(cmd, app.SectionLog)
	return cmd
}
