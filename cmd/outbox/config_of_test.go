package main

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/test/clitest"
)

// parseConfig returns the configuration of a file, an environment and flags.
func parseConfig(t *testing.T, yaml string, env map[string]string, args ...string) (*app.Config, error) {
	t.Helper()
	flags := func(cmd *cobra.Command) {
		app.AddFlags(cmd, slices.Concat([]string{app.SectionAdmin, app.SectionRelay, app.SectionSchema}, app.OrdersSections, app.MessagesSections)...)
	}
	return clitest.Config(t, app.LoadConfigFrom, flags, yaml, env, args...)
}
