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
	var by dlqActor
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Publish the events of the outbox to their topics",
		Long: `Publish the events of the outbox to their topics, until SIGTERM.

The relay also scans the outbox table, concurrently, if the CDC log may lack events:
at its first start with a table that may be older than its log, or after an absence
longer than the log keeps its rows. An interrupted scan continues at the next start.
--backfill-from requests a scan: it publishes every event written since that time
that is not in its topic. Each time is scanned once, so the flag may stay set.

The first start of a relay.name with a table that another one has published is refused:
it would publish all events again. With --backfill-from it begins at that time.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			request := app.BackfillRequest{Actor: by.actorName(), Reason: by.reason}
			if from != "" {
				var err error
				if request.From, err = time.Parse(time.RFC3339, from); err != nil {
					return cli.Usage(fmt.Errorf("--backfill-from %q: write a time such as 2026-01-02T15:04:05Z; an age would be another time at each start", from))
				}
			}
			return app.RunRelay(cmd, c, request)
		}),
	}
	cmd.Flags().StringVar(&from, "backfill-from", "", "publish events written since this time (RFC 3339) that are not in their topics")
	cmd.Flags().StringVar(&by.reason, "reason", "", "reason for --backfill-from, recorded in the audit trail")
	cmd.Flags().StringVar(&by.actor, "actor", "", "actor of --backfill-from, recorded there (default the user of this machine)")
	app.AddFlags(cmd, app.RelaySections...)
	cmd.AddCommand(newReshardCommand())
	return cmd
}
