package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// configOf returns the configuration of a file, an environment and flags.
func configOf(t *testing.T, yaml string, env map[string]string, args ...string) (*app.Config, error) {
	t.Helper()
	cmd := &cobra.Command{}
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionHTTP, app.SectionProxies, app.SectionAdmin, app.SectionAdminAPI, app.SectionRelay, app.SectionSchema, app.SectionLog)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	path := ""
	if yaml != "" {
		path = filepath.Join(t.TempDir(), "outbox.yaml")
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	return app.LoadConfigFrom(path, lookup, cmd.Flags())
}
