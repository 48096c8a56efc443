package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// newBenchRelayCommand is the relay in a process of its own, as `outbox relay` runs it.
func newBenchRelayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "relay",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return err
			}
			return app.RunRelay(cmd, c, time.Time{})
		},
	}
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionAdmin, app.SectionRelay, app.SectionNotifications, app.SectionRetention, app.SectionLog)
	return cmd
}
