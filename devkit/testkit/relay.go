package testkit

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/engines"
	"github.com/scylla-outbox/scylla-outbox/devkit/processes/processtest"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// variable is the environment variable that makes a process the relay of a Kit.
const variable = "OUTBOX_TESTKIT_RELAY"

const (
	// window is the relay's confidence window: there is one clock and no other replica, so a row
	// is late only by the time for which a service repeats a write with its first timestamp.
	window = 30 * time.Second
	// sessionTimeout is that of the relay: a killed one restarts, and its shard has no owner for
	// that long.
	sessionTimeout = 2 * time.Second
)

// relayProcess describes the process of a relay.
type relayProcess struct {
	Config, CQL, Kafka string
}

// startRelay starts the relay: this program, as which init runs it.
func (k *Kit) startRelay(config string) *Process {
	k.t.Helper()
	if config != "" {
		var err error
		if config, err = filepath.Abs(config); err != nil {
			k.t.Fatal(err)
		}
	}
	b, err := json.Marshal(relayProcess{config, k.CQL, k.Kafka})
	if err != nil {
		k.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		k.t.Fatal(err)
	}
	return processtest.Start(k.t, "relay", self, []string{variable + "=" + string(b)}, nil)
}

func init() {
	if conf, ok := os.LookupEnv(variable); ok {
		_ = os.Unsetenv(variable) // a program that the relay starts is none
		os.Exit(runRelay(conf))
	}
}

// runRelay runs a relay until SIGTERM and returns the exit status.
func runRelay(conf string) int {
	var p relayProcess
	if err := json.Unmarshal([]byte(conf), &p); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", variable, err)
		return cli.ExitUsage
	}
	root := cli.NewRoot("testkit", "Run the relay of a test", "Run the relay of a test.", os.Stdout, os.Stderr)
	relay := &cobra.Command{Use: "relay", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		c, err := engines.Settings(p.Config, cmd.Flags())
		if err != nil {
			return err
		}
		c.Scylla.Hosts, c.Kafka.Seeds, c.Ops.Addr = []string{p.CQL}, []string{p.Kafka}, app.OpsOff
		c.Relay.ConfidenceWindow = min(c.Relay.ConfidenceWindow, window)
		c.Relay.SessionTimeout = min(c.Relay.SessionTimeout, sessionTimeout)
		return app.RunRelay(cmd, c, app.BackfillRequest{})
	}}
	root.AddCommand(relay)
	return cli.Execute(root, []string{"relay"}, os.Stderr)
}
