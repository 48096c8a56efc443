package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

// reshardFlags contains the flags of relay reshard.
type reshardFlags struct {
	dlqConfirm
	dlqActor
	to int
}

func newReshardCommand() *cobra.Command {
	var f reshardFlags
	cmd := &cobra.Command{
		Use:   "reshard --to N",
		Short: "Change the number of shards of a relay",
		Long: `Change the number of shards of a relay.

Stop all instances first. The command fails while one runs; a killed instance counts
as running for relay.session_timeout. Then start the instances with relay.shards set
to the new number. They continue from the checkpoints; no event is lost or published
twice. An instance with another number exits with an error.

The command writes the number into the table relay_sharing, then changes the
partitions of the topic outbox.relay.NAME.shards: it adds partitions or, for a smaller
number, deletes the topic, which is always empty, and creates it again. After an
interruption no instance works until the command has been run again, with this or
another number. The Kafka user needs ALTER on that topic, or DELETE and CREATE for a
smaller number, and DESCRIBE on the group.

The command prints a preview first. On a terminal it asks for confirmation; elsewhere
it requires --yes. The audit trail records the change (GET /v1/dlq/audit).

Exit status: 0 success; 1 failure, or instances run; 2 wrong command line or
configuration.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			if f.to < 1 || f.to > share.MaxShards {
				return cli.Usage(fmt.Errorf("--to %d is not allowed; use a number from 1 to %d, where 1 is one active instance and standbys", f.to, share.MaxShards))
			}
			if err := f.required(f.dryRun); err != nil {
				return err
			}
			return reshard(c, cmd, &f)
		}),
	}
	cmd.Flags().IntVar(&f.to, "to", 0, "new number of shards")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "audit trail")
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionRelay, app.SectionLog)
	return cmd
}

func reshard(c *app.Config, cmd *cobra.Command, f *reshardFlags) error {
	ctx := cmd.Context()
	log, err := c.Log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	session, client, disconnect, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	r := app.NewResharding(c, session, client, f.to)
	if err := r.Look(ctx); err != nil {
		return err
	}
	r.Preview(cmd.ErrOrStderr())
	if r.IsDone() {
		return nil
	}
	if err := r.Refuse(); err != nil || f.dryRun {
		return err
	}
	if err := f.confirm(cmd, fmt.Sprintf("divide relay %s into %s?", r.Name, cli.Plural(r.To, "shard"))); err != nil {
		return err
	}
	by := f.by()
	change := admin.Change{Actor: by.Name, Action: "reshard-relay", Target: r.Name, Detail: fmt.Sprintf(`{"from":%d,"to":%d}`, r.From(), r.To), Reason: by.Reason}
	if err := admin.Audited(ctx, session, c.Scylla.Keyspace, log, change, func(ctx context.Context) (string, string, error) { return "", "", r.Run(ctx, by.Name) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "relay %s is divided into %s: set relay.shards to %d in all instances, and start them\n", r.Name, cli.Plural(r.To, "shard"), r.To)
	return err
}
