package clitest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Loader reads a configuration from a file, whose path may be empty, an environment and
// flags.
type Loader[C any] func(file string, lookup func(string) (string, bool), flags *pflag.FlagSet) (*C, error)

// Config returns the configuration that load reads from a YAML file with the text, or none
// if that is empty, from env, and from args. addFlags adds the flags to the command.
func Config[C any](t *testing.T, load Loader[C], addFlags func(*cobra.Command), yaml string, env map[string]string, args ...string) (*C, error) {
	t.Helper()
	cmd := &cobra.Command{}
	addFlags(cmd)
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
	return load(path, func(k string) (string, bool) { v, ok := env[k]; return v, ok }, cmd.Flags())
}
