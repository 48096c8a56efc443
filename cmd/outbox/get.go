package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// newGetCommand completes a command of texts, and returns it: it prints what the admin API has of the
// id that is its argument, as a table by print, or as JSON or YAML.
func newGetCommand[T any](cmd *cobra.Command, with func(*cobra.Command, string, func(*operatorAPI) error) error,
	read func(api *operatorAPI, ctx context.Context, id string) (T, error), print func(io.Writer, *T) error,
) *cobra.Command {
	var output string
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := eventIDs(args)
		if err == nil {
			err = cli.CheckOutput(output)
		}
		if err != nil {
			return err
		}
		return with(cmd, "", func(api *operatorAPI) error {
			found, err := read(api, cmd.Context(), ids[0].String())
			if err != nil {
				return err
			}
			if output != "table" {
				return cli.PrintAs(cmd.OutOrStdout(), output, found)
			}
			return print(cmd.OutOrStdout(), &found)
		})
	}
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionAPI)
	return cmd
}
