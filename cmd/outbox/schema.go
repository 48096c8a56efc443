package main

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

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
		Short: "Create, show and print the tables; describe the topics; begin epochs",
	}
	cmd.AddCommand(newSchemaMigrateCommand(), newSchemaStatusCommand(), newSchemaPrintCommand(), newSchemaAsyncAPICommand(), newSchemaNewEpochCommand())
	return cmd
}

// componentsFlag is the flag --components.
type componentsFlag struct{ names []string }

func (f *componentsFlag) addTo(cmd *cobra.Command, usage string) {
	const name = "components"
	cmd.Flags().StringSliceVar(&f.names, name, nil, usage+": "+schema.JoinComponents(schema.Components()))
	err := cmd.RegisterFlagCompletionFunc(name, func(_ *cobra.Command, _ []string, word string) (words []string, _ cobra.ShellCompDirective) {
		before := word[:strings.LastIndex(word, ",")+1]
		for _, c := range schema.Components() {
			if !slices.Contains(strings.Split(before, ","), string(c)) {
				words = append(words, before+string(c))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
	if err != nil {
		panic(err) // no such flag
	}
}

// options returns the options of the configuration with the components of the flag.
func (f *componentsFlag) options(cmd *cobra.Command, c *app.Config, log *slog.Logger) (o schema.Options, err error) {
	o = c.SchemaOptions(log)
	if cmd.Flags().Changed("components") {
		if o.Components, err = schema.ParseComponents(f.names); err != nil {
			return o, cli.Usage(fmt.Errorf("--components: %w", err))
		}
	}
	return o, nil
}

func newSchemaMigrateCommand() *cobra.Command {
	var dryRun bool
	var components componentsFlag
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate the keyspace; safe to run repeatedly and concurrently",
		Long: `Migrate the keyspace; safe to run repeatedly and concurrently.

A new keyspace gets all components but orders, which is the example's, or those of
--components and the ones that they require. Later runs migrate the components that the
keyspace has, and add those of --components. docs/own-tables.md lists the tables of each.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return err
			}
			log, err := c.Log.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			o, err := components.options(cmd, c, log)
			if err != nil {
				return err
			}
			session, err := c.Scylla.Session("")
			if err != nil {
				return err
			}
			defer sessions.Close(session)
			if dryRun {
				return planMigration(cmd, session, o)
			}
			if err := schema.Migrate(cmd.Context(), session, o); err != nil {
				return err
			}
			has, err := schema.ReadInstalled(cmd.Context(), session, o.Keyspace)
			if err != nil {
				return err
			}
			return printUpToDate(cmd.OutOrStdout(), o.Keyspace, has)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list the migrations that would be applied; exit status 1 if one has changed")
	components.addTo(cmd, "components to add, with all that they require")
	app.AddFlags(cmd, app.SectionScylla, app.SectionSchema, app.SectionLog)
	return cmd
}

// printUpToDate prints that no migration of the components is missing.
func printUpToDate(w io.Writer, keyspace string, has []schema.Component) error {
	_, err := fmt.Fprintf(w, "keyspace %s is up to date with %s\n", keyspace, schema.JoinComponents(has))
	return err
}

// planMigration prints the migrations that migrate would apply, by component.
func planMigration(cmd *cobra.Command, session *gocql.Session, o schema.Options) error {
	r, err := schema.Status(cmd.Context(), session, o)
	if err != nil {
		return err
	}
	pending, plan := 0, map[schema.Component][]schema.MigrationStatus{}
	for _, m := range r.Migrations {
		switch m.State {
		case schema.StatePending:
			pending++
			plan[m.Component] = append(plan[m.Component], m)
		case schema.StateChanged:
			return fmt.Errorf("migration %03d %s was applied with another content; outbox schema migrate refuses to continue", m.Version, m.Name)
		}
	}
	out := cmd.OutOrStdout()
	if pending == 0 {
		return printUpToDate(out, r.Keyspace, r.Components)
	}
	for _, c := range schema.Components() {
		if len(plan[c]) > 0 {
			fmt.Fprintf(out, "component %s\n", c)
		}
		for _, m := range plan[c] {
			fmt.Fprintf(out, "  would apply %03d %s\n", m.Version, m.Name)
		}
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
			err = cli.Show(cmd.OutOrStdout(), output, r, func(w io.Writer) error { return printStatus(w, r) })
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
	if len(r.Components) > 0 {
		fmt.Fprintf(w, "components %s\n", schema.JoinComponents(r.Components))
	}
	if r.LockedBy != "" {
		fmt.Fprintf(w, "being migrated by %s\n", r.LockedBy)
	}
	tw := cli.NewColumns(w)
	for _, m := range r.Migrations {
		at, by := "", ""
		if m.Applied != nil {
			at, by = m.Applied.At.UTC().Format(cli.ListTime), m.Applied.By
		}
		fmt.Fprintf(tw, "%03d\t%s\t%s\t%s\t%s\t%s\n", m.Version, m.Name, m.Component, m.State, at, by)
	}
	return tw.Flush()
}

func newSchemaPrintCommand() *cobra.Command {
	var components componentsFlag
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the CQL of a new keyspace, without a connection",
		Args:  cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			o, err := components.options(cmd, c, nil)
			if err != nil {
				return err
			}
			return schema.Print(cmd.OutOrStdout(), o)
		}),
	}
	components.addTo(cmd, "components to print, with all that they require; default all but orders")
	app.AddFlags(cmd, app.SectionScylla, app.SectionSchema)
	return cmd
}

func newSchemaAsyncAPICommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "asyncapi",
		Short: "Print the AsyncAPI document of the topics of orders",
		Long: `Print the AsyncAPI 3.0 document of the topics of orders, without a connection.

Topics and source are those of the relay's settings, the servers are kafka.seeds. The
order API serves the same document, without servers, at /asyncapi.json.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			p, err := c.Publication()
			if err != nil {
				return err
			}
			p.Brokers = c.Kafka.Seeds
			doc, err := p.AsyncAPI()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", doc)
			return err
		}),
	}
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionRelay)
	return cmd
}
