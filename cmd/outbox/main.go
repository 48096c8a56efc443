// Command outbox is the transactional outbox: the order service, the relay,
// their schema, and the tools around them, in one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

// version is set by the linker.
var version = "dev"

// The exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // what was asked for did not succeed
	exitUsage  = 2 // the command line or the configuration is wrong
	exitWaits  = 3 // it was asked for, and the time to wait for it is up; or nothing could be checked
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes a command line. Results go to out, everything else to errOut.
func run(args []string, out, errOut io.Writer) int {
	ctx, stop := daemon.Signals(context.Background())
	defer stop()
	root := newRoot(out, errOut)
	root.SetArgs(args)
	began := false
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !began && hintOf(err) == "" { // no such command, or not with these arguments
		err = usageError{withHint(err, "%s --help shows how it is used", cmd.CommandPath())}
	}
	var quiet quietError
	if errors.As(err, &quiet) {
		return exitFailed
	}
	var waits waitsError
	if errors.As(err, &waits) {
		return exitWaits
	}
	fmt.Fprintln(errOut, "outbox: "+strings.TrimSpace(err.Error())) // drivers end theirs with a line end
	if text := hintOf(err); text != "" {
		fmt.Fprintln(errOut, "hint: "+text)
	}
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func newRoot(out, errOut io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox",
		Short: "A transactional outbox for ScyllaDB and the relay that carries it to Kafka",
		Long: `A transactional outbox for ScyllaDB and the relay that carries it to Kafka.

'outbox dev' runs it all in one process, with embedded engines and sample
orders. Against real clusters: 'outbox schema migrate' once, then 'outbox
orders' and 'outbox relay', each as many times as needed. 'outbox doctor'
says what is missing, 'outbox verify' whether anything was lost.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(out)
	root.SetErr(errOut)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{withHint(err, "%s --help lists the flags", c.CommandPath())}
	})
	root.AddCommand(
		newDevCommand(), newOrdersCommand(), newTokenCommand(), newRelayCommand(), newSchemaCommand(), newLoadCommand(),
		newTailCommand(), newDoctorCommand(), newVerifyCommand(), newDLQCommand(), newAdminCommand(), newReactCommand(), newDeliveriesCommand(), newScheduledCommand(), newFakeCommand(), newBenchCommand(), newVersionCommand(),
	)
	return root
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}

// hint is an error with a sentence on what to do about it.
type hint struct {
	err  error
	text string
}

func (h hint) Error() string { return h.err.Error() }
func (h hint) Unwrap() error { return h.err }

func withHint(err error, format string, args ...any) error {
	return hint{err, fmt.Sprintf(format, args...)}
}

// hintOf is what to do about an error, as far as it is known.
func hintOf(err error) string {
	var h hint
	switch {
	case errors.As(err, &h):
		return h.text
	case cqlcode.Of(err) == gocql.ErrCodeInvalid: // as for a table or a column that is not there
		return "if a table or a column is missing, outbox schema migrate adds it; outbox schema status shows what is missing"
	}
	return ""
}

// usageError is a wrong command line or configuration.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// quietError fails the command after it has said itself what is wrong.
type quietError struct{}

func (quietError) Error() string { return "failed" }

// waitsError is no failure: what was asked for is not done yet, and the command has
// said so itself.
type waitsError struct{}

func (waitsError) Error() string { return "not done yet" }

// oneOf checks the value of a flag that has a few allowed ones.
func oneOf(flag, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return usageError{fmt.Errorf("--%s %q: use %s", flag, value, strings.Join(allowed, " or "))}
}
