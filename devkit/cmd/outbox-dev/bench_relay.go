package main

import (
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// newBenchRelayCommand returns the command that runs the relay in a process of its own,
// as `outbox relay` does.
func newBenchRelayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "relay",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			return app.RunRelay(cmd, c, app.BackfillRequest{})
		}),
	}
	app.AddFlags(cmd, app.RelaySections...)
	return cmd
}
