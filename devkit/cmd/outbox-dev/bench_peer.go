package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/clientlog"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// newBenchPeerCommand returns the command that runs the peer of the relay in a process
// of its own.
func newBenchPeerCommand() *cobra.Command {
	var (
		window, delay, age time.Duration
		topic              string
	)
	cmd := &cobra.Command{
		Use:    "peer",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			return app.Serving(cmd, c, func(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown) error {
				r := bench.Reader{
					Table: c.Scylla.Keyspace + "." + c.Relay.Table, Topic: topic,
					Window: window, Delay: delay, Age: age, Logger: clientlog.CDC(log, func() {}),
				}
				return runPeer(ctx, c, &r, log, teardown)
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&topic, "topic", "", "topic of all events; empty for their type")
	f.DurationVar(&window, "window", 0, "confidence window; 0 for the library's default")
	f.DurationVar(&delay, "delay", 0, "delay after queries; 0 for the library's defaults")
	f.DurationVar(&age, "age", time.Minute, "age of the oldest changes to read")
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionOps, app.SectionRelay, app.SectionLog)
	return cmd
}

// runPeer runs r with clients of the configuration.
func runPeer(ctx context.Context, c *app.Config, r *bench.Reader, log *slog.Logger, teardown *daemon.Teardown) (err error) {
	reg := app.NewRegistry("bench")
	c.Scylla.Requests = app.NewRequests(reg)
	if r.Session, err = c.Scylla.Session(c.Scylla.Keyspace); err != nil {
		return err
	}
	teardown.AddFunc("scylla session", func() { sessions.Close(r.Session) })
	if r.Client, err = c.Kafka.Client(kgo.AllowAutoTopicCreation()); err != nil {
		return err
	}
	teardown.AddFunc("kafka client", r.Client.Close)
	ops, err := app.ServeOps(ctx, c, reg, log, teardown)
	if err != nil {
		return err
	}
	ops.Works(func() (bool, any) { return true, nil })
	log.Info("peer running", "ops", ops.URL)
	return ops.With(ctx, r.Run)
}
