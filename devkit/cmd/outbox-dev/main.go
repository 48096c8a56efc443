// Command outbox-dev runs the outbox with embedded engines: everything in one process
// (run), the engines alone (engines), and the benchmarks (bench); and drills on a cluster
// (chaos). It is for trials, tests and measurements; do not use the engines in production.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes a command line. Results go to out, everything else to errOut.
func run(args []string, out, errOut io.Writer) int {
	return cli.Execute(newRoot(out, errOut), args, errOut)
}

func newRoot(out, errOut io.Writer) *cobra.Command {
	root := cli.NewRoot("outbox-dev", "Run, try and measure the outbox with embedded engines", `Run, try and measure the outbox with embedded engines.

'outbox-dev run' starts everything in one process, with sample orders.
'outbox-dev engines' starts the embedded engines alone: a ScyllaDB-compatible
server and a Kafka broker. 'outbox-dev bench' measures the relay and the services.
'outbox-dev chaos' kills a relay of a cluster for tests, and accounts for each event.`, out, errOut)
	root.AddCommand(newRunCommand(), newEnginesCommand(), newBenchCommand(), newLoadCommand(), newChaosCommand(), cli.NewVersionCommand())
	return root
}
