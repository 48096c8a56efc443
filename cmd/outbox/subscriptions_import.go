package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

func newSubscriptionsImportCommand() *cobra.Command {
	var file string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "import-reactions -f FILE",
		Short: "Create subscriptions from the rules of a former configuration",
		Long: `Create subscriptions with push delivery from the rules of the former command react.

FILE is the former configuration; the command reads react.group and react.rules. Stop all
its processes first. Each subscription continues at the committed offsets of
the rule's consumer group. Existing subscriptions are not changed, so the command can be
repeated. docs/subscriptions.md describes the steps.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error { return importReactions(cmd, c, file, dryRun) }),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "former configuration file with react.rules")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "create nothing")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionPush, app.SectionLog)
	return cmd
}

func importReactions(cmd *cobra.Command, c *app.Config, file string, dryRun bool) error {
	f, err := os.Open(file)
	if err != nil {
		return cli.Usage(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	rules, err := app.ReadReactions(f)
	if err != nil {
		return cli.Usage(fmt.Errorf("file %s: %w", file, err))
	}
	all, err := rules.Subscriptions()
	if err != nil {
		return cli.Usage(fmt.Errorf("file %s: %w", file, err))
	}
	log, err := c.Log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	destinations, err := c.Destinations(log)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	c.Scylla.Need(schema.Subscriptions)
	session, _, disconnect, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	resources, err := store.Open(session, c.Scylla.Keyspace)
	if err != nil {
		return err
	}
	client, err := c.Kafka.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	i := app.Importer{Session: session, Keyspace: c.Scylla.Keyspace, Store: resources, Kafka: kadm.NewClient(client), Destinations: destinations, DryRun: dryRun}
	for _, s := range all {
		one, err := i.Import(ctx, rules.Group, s)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		switch {
		case one.Existed:
			fmt.Fprintf(out, "subscription %s exists and was not changed\n", s.Name)
		case dryRun:
			fmt.Fprintf(out, "subscription %s would continue in %d partitions, and begin in others at %s\n", s.Name, one.Partitions, one.Subscription.Start)
		default:
			fmt.Fprintf(out, "subscription %s continues in %d partitions, and begins in others at %s\n", s.Name, one.Partitions, one.Subscription.Start)
		}
		if one.Unknown != "" {
			fmt.Fprintf(out, "  %s; list it in subscriptions.targets, or run the plugin in your program\n", one.Unknown)
		}
	}
	return nil
}
