// Package config is the command outbox config, which prints and checks the settings of a
// file and the environment. It connects to nothing.
package config

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// NewCommand returns the command config.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print and check the configuration",
		Long: `Print and check the configuration of the environment and the file. The environment
takes precedence over the file.`,
	}
	cmd.AddCommand(newPrintCommand(), newCheckCommand())
	return cmd
}

func newPrintCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the configuration in force, with redacted secrets",
		Long: `Print the configuration in force, with redacted secrets: of the environment, the file
and the defaults. The default of ops.addr is that of the relay.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, _, err := app.CheckedSettings(cmd)
			if err != nil {
				return err
			}
			return cli.Show(cmd.OutOrStdout(), output, all.Document(), func(w io.Writer) error {
				columns := cli.NewColumns(w)
				fmt.Fprintln(columns, "SETTING\tVARIABLE\tVALUE")
				for _, f := range all {
					fmt.Fprintf(columns, "%s\t%s\t%s\n", f.Key, f.Env(), cli.Clean(f.RedactedText(), 0))
				}
				return columns.Flush()
			})
		},
	}
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd)
	return cmd
}

func newCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, without a connection",
		Long: `Check the configuration, without a connection: the file, the variables, and what each
command checks at its start, such as tokens, addresses, targets, certificates and tables.
'outbox doctor' checks database, broker and rights too.

Exit status: 0 no problem; 2 a problem.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, c, err := app.CheckedSettings(cmd)
			if err != nil {
				return err
			}
			if err := c.Check(); err != nil {
				return err
			}
			confs, err := c.RelayConfigs()
			if err != nil {
				return cli.Usage(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the configuration is valid: %d settings, %s\n", len(all), cli.Plural(len(confs), "outbox table"))
			return err
		},
	}
	app.AddFlags(cmd)
	return cmd
}
