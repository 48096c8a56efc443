// Command outbox is the transactional outbox: the relay, the APIs of messages and
// subscriptions, their schema, and the tools around them, in one binary.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/cmd/outbox/internal/config"
	"github.com/scylla-outbox/scylla-outbox/cmd/outbox/internal/tail"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes a command line. Results are written to out, everything else to errOut.
func run(args []string, out, errOut io.Writer) int {
	return cli.Execute(newRoot(out, errOut), args, errOut)
}

func newRoot(out, errOut io.Writer) *cobra.Command {
	root := cli.NewRoot("outbox", "A transactional outbox for ScyllaDB and the relay that carries it to Kafka", `A transactional outbox for ScyllaDB and the relay that carries it to Kafka.

Run 'outbox schema migrate' once, then any number of 'outbox relay' and, as needed,
'outbox messages', 'outbox subscriptions' and 'outbox admin'. 'outbox doctor' checks the
installation, 'outbox verify' proves that no event was lost. 'outbox-dev run' starts
everything in one process, with embedded engines and sample orders.`, out, errOut)
	root.AddCommand(
		newOrdersCommand(), newTokenCommand(), newRelayCommand(), newSchemaCommand(),
		tail.NewCommand(), newDoctorCommand(), newVerifyCommand(), newDLQCommand(), newNotifierCommand(), newAuditCommand(), newEventsCommand(), newAdminCommand(), newMessagesCommand(), newSubscriptionsCommand(), newConsumeCommand(), newStatusCommand(), newHealthCommand(), config.NewCommand(), cli.NewVersionCommand(),
	)
	if err := cli.Examples(root, examples); err != nil {
		panic(err) // TestHelp_ExamplesAreValid checks them
	}
	return root
}
