package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func newRelayCommand() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Carry events from the outbox to their topics, until SIGTERM",
		Long: `Carry events from the outbox to their topics, until SIGTERM.

When it starts for the first time with a table that may be older than its CDC
log, or was away for longer than the log keeps its rows, it also scans the
outbox table for what the log does not have, beside everything else. A scan
that is interrupted goes on at the next start. --backfill-from asks for one:
every event written since that time which is not in its topic is published. The
same time asks once, so the flag may stay where it is.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			var backfillFrom time.Time
			if from != "" {
				var err error
				if backfillFrom, err = time.Parse(time.RFC3339, from); err != nil {
					return cli.Usage(fmt.Errorf("--backfill-from %q: write a time such as 2026-01-02T15:04:05Z; how long ago would be another time at each start", from))
				}
			}
			return app.RunRelay(cmd, c, backfillFrom)
		}),
	}
	cmd.Flags().StringVar(&from, "backfill-from", "", "publish every event written since this time (RFC 3339) that is not in its topic, once for the same time")
	app.AddFlags(cmd, app.RelaySections...)
	cmd.AddCommand(newReshardCommand())
	return cmd
}
