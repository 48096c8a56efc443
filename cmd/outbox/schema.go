package main

import (
	"fmt"
	"io"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

func newSchemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Create, show and print the tables",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSchemaMigrateCommand(), newSchemaStatusCommand(), newSchemaPrintCommand())
	return cmd
}

func newSchemaMigrateCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate the keyspace; safe to run repeatedly and concurrently",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return err
			}
			log, err := c.Log.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			session, err := c.Scylla.Session("")
			if err != nil {
				return err
			}
			defer sessions.Close(session)
			if dryRun {
				return planMigration(cmd, session, c.SchemaOptions(log))
			}
			if err := schema.Migrate(cmd.Context(), session, c.SchemaOptions(log)); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "keyspace %s is up to date\n", c.Scylla.Keyspace)
			return err
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list the migrations that would be applied; exit status 1 if one has changed")
	app.AddFlags(cmd, app.SectionScylla, app.SectionSchema, app.SectionLog)
	return cmd
}

// planMigration prints the migrations that migrate would apply.
func planMigration(cmd *cobra.Command, session *gocql.Session, o schema.Options) error {
	r, err := schema.Status(cmd.Context(), session, o)
	if err != nil {
		return err
	}
	out, pending := cmd.OutOrStdout(), 0
	for _, m := range r.Migrations {
		switch m.State {
		case schema.StatePending:
			pending++
			fmt.Fprintf(out, "would apply %03d %s\n", m.Version, m.Name)
		case schema.StateChanged:
			return fmt.Errorf("migration %03d %s was applied with another content; outbox schema migrate refuses to continue", m.Version, m.Name)
		}
	}
	if pending == 0 {
		_, err = fmt.Fprintf(out, "keyspace %s is up to date\n", r.Keyspace)
		return err
	}
	_, err = fmt.Fprintf(out, "%s of keyspace %s; 'outbox schema print' prints the tables\n", cli.Plural(pending, "migration"), r.Keyspace)
	return err
}

func newSchemaStatusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the applied migrations; exit status 1 if some are missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return err
			}
			session, err := c.Scylla.Session("")
			if err != nil {
				return err
			}
			defer sessions.Close(session)
			r, err := schema.Status(cmd.Context(), session, c.SchemaOptions(nil))
			if err != nil {
				return err
			}
			if output != "table" {
				err = cli.PrintAs(cmd.OutOrStdout(), output, r)
			} else {
				err = printStatus(cmd.OutOrStdout(), r)
			}
			if err == nil && !r.UpToDate() {
				err = cli.QuietError{}
			}
			return err
		},
	}
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla)
	return cmd
}

func printStatus(w io.Writer, r schema.Report) error {
	fmt.Fprintf(w, "keyspace %s\n", r.Keyspace)
	if r.LockedBy != "" {
		fmt.Fprintf(w, "being migrated by %s\n", r.LockedBy)
	}
	tw := cli.NewColumns(w)
	for _, m := range r.Migrations {
		at, by := "", ""
		if m.Applied != nil {
			at, by = m.Applied.At.UTC().Format(cli.ListTime), m.Applied.By
		}
		fmt.Fprintf(tw, "%03d\t%s\t%s\t%s\t%s\n", m.Version, m.Name, m.State, at, by)
	}
	return tw.Flush()
}

func newSchemaPrintCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the CQL of a new keyspace, without a connection",
		Args:  cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			return schema.Print(cmd.OutOrStdout(), c.SchemaOptions(nil))
		}),
	}
	app.AddFlags(cmd, app.SectionScylla, app.SectionSchema)
	return cmd
}
