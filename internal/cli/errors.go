package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

// The exit statuses.
const (
	ExitOK     = 0
	ExitFailed = 1 // the command failed
	ExitUsage  = 2 // the command line or the configuration is wrong
	ExitWaits  = 3 // the request was made and is not complete; or nothing could be checked
)

// Execute runs a command line and returns the exit status. Errors go to errOut.
func Execute(root *cobra.Command, args []string, errOut io.Writer) int {
	ctx, stop := daemon.Signals(commandContext(root))
	defer stop()
	root.SetArgs(args)
	prepare(root)
	began := false
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if !began && FindHint(err) == "" { // unknown command, or wrong arguments
		err = Usage(WithHint(err, "%s --help shows its usage", cmd.CommandPath()))
	}
	var quiet QuietError
	if errors.As(err, &quiet) {
		return ExitFailed
	}
	var waits WaitsError
	if errors.As(err, &waits) {
		return ExitWaits
	}
	fmt.Fprintln(errOut, root.Name()+": "+strings.TrimSpace(err.Error())) // errors of drivers end with a newline
	if text := FindHint(err); text != "" {
		fmt.Fprintln(errOut, "hint: "+text)
	}
	if errors.As(err, new(UsageError)) {
		return ExitUsage
	}
	return ExitFailed
}

// Usage returns err as an error of usage, with the exit status ExitUsage.
func Usage(err error) error { return UsageError{err} }

// Hint is an error with the user's next step.
type Hint struct {
	err  error
	Text string
}

func (h Hint) Error() string { return h.err.Error() }

func (h Hint) Unwrap() error { return h.err }

// WithHint returns err with a hint, the formatted text, which Execute prints below the error.
func WithHint(err error, format string, args ...any) error {
	return Hint{err, fmt.Sprintf(format, args...)}
}

// FindHint returns the hint of an error, empty for none.
func FindHint(err error) string {
	var h Hint
	switch {
	case errors.As(err, &h):
		return h.Text
	case cqlcode.Of(err) == gocql.ErrCodeInvalid: // a missing table or column
		return "if a table or a column is missing, outbox schema migrate adds it; outbox schema status lists the missing migrations"
	}
	return ""
}

// UsageError is a wrong command line or configuration.
type UsageError struct{ err error }

func (u UsageError) Error() string { return u.err.Error() }

func (u UsageError) Unwrap() error { return u.err }

// QuietError is the error of a command that has already printed the problem.
type QuietError struct{}

func (QuietError) Error() string { return "failed" }

// WaitsError is the error of a command whose request is not complete yet, or that could check
// nothing. It has already printed this. It is not a failure.
type WaitsError struct{}

func (WaitsError) Error() string { return "not done yet" }

// CheckChoice returns an error of usage unless value is one of the allowed values of the flag.
func CheckChoice(flag, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return Usage(fmt.Errorf("--%s %q: use %s", flag, value, strings.Join(allowed, " or ")))
}

// Plural returns n and the noun what, with a plural s unless n is 1.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// NewRoot returns the command of a program, without subcommands: results are written to
// out, everything else to errOut, and a wrong flag is an error of usage.
func NewRoot(name, short, long string, out, errOut io.Writer) *cobra.Command {
	root := &cobra.Command{Use: name, Short: short, Long: long, SilenceErrors: true, SilenceUsage: true}
	// Not by root.Version: its template calls methods by name, so the linker would keep the
	// exported methods of all types.
	version := root.Flags().BoolP("version", "v", false, "version for "+name)
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if asked, _ := c.Flags().GetBool("help"); c == root && *version && !asked {
			fmt.Fprintln(c.OutOrStdout(), Version)
			return
		}
		help(c, args)
	})
	root.SetOut(out)
	root.SetErr(errOut)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return Usage(WithHint(err, "%s --help lists the flags", c.CommandPath()))
	})
	root.SetUsageFunc(usage)
	return root
}

// commandContext returns the context of a command, which tests set.
func commandContext(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
