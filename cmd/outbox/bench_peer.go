package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/bench"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// newBenchPeerCommand is what `outbox bench` compares the relay with, in a
// process of its own.
func newBenchPeerCommand() *cobra.Command {
	var (
		window, delay, age time.Duration
		topic              string
	)
	cmd := &cobra.Command{
		Use:    "peer",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return serving(cmd, c, func(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown) error {
				r := bench.Reader{
					Table: c.Scylla.Keyspace + "." + c.Relay.Table, Topic: topic,
					Window: window, Delay: delay, Age: age, Logger: readerDebug{log},
				}
				return runPeer(ctx, c, &r, log, teardown)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&topic, "topic", "", "topic of all events; empty for their type")
	f.DurationVar(&window, "window", 0, "confidence window; 0 for the library's default")
	f.DurationVar(&delay, "delay", 0, "delay after queries; 0 for the library's defaults")
	f.DurationVar(&age, "age", time.Minute, "how far back it starts")
	addFlags(cmd, sectionScylla, sectionKafka, sectionAdmin, sectionRelay, sectionLog)
	return cmd
}

// runPeer runs r with clients of the configuration.
func runPeer(ctx context.Context, c *config, r *bench.Reader, log *slog.Logger, teardown *daemon.Teardown) (err error) {
	reg := newRegistry()
	c.Scylla.requests = newRequests(reg)
	if r.Session, err = c.Scylla.session(c.Scylla.Keyspace); err != nil {
		return err
	}
	teardown.AddFunc("scylla session", func() { sessions.Close(r.Session) })
	if r.Client, err = c.Kafka.client(kgo.AllowAutoTopicCreation()); err != nil {
		return err
	}
	teardown.AddFunc("kafka client", r.Client.Close)
	admin, err := c.serveAdmin(ctx, reg, log, teardown)
	if err != nil {
		return err
	}
	admin.works(func() (bool, any) { return true, nil })
	log.Info("peer running", "admin", admin.url)
	return admin.with(ctx, r.Run)
}

// readerDebug logs the library's lines.
type readerDebug struct{ log *slog.Logger }

// Printf is the library's Logger.
func (l readerDebug) Printf(format string, args ...any) {
	l.log.Debug("cdc reader: " + fmt.Sprintf(format, args...))
}
