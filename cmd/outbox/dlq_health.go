package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/doctor"
)

// healthy returns nil if relays and broker are ready for a replay of the dead letters, or
// with --force. The error lists the problems.
func (f *dlqChangeFlags) healthy(cmd *cobra.Command, c *app.Config, deadLetters []dlq.DeadLetter) error {
	tables := make(map[string]bool)
	for i := range deadLetters {
		tables[deadLetters[i].Table] = true
	}
	problems := doctor.ReplayProblems(cmd.Context(), c, tables)
	if len(problems) == 0 {
		return nil
	}
	text := strings.Join(problems, "; ")
	if f.force {
		fmt.Fprintln(cmd.ErrOrStderr(), "problems: "+text+"; continuing because of --force")
		return nil
	}
	return cli.WithHint(errors.New("nothing was replayed: "+text), "fix it, or add --force: the relay publishes the dead letters once it can")
}
