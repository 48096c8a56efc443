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

// reshardFlags are those of relay reshard.
type reshardFlags struct {
	dlqConfirm
	dlqActor
	to int
}

func newReshardCommand() *cobra.Command {
	var f reshardFlags
	cmd := &cobra.Command{
		Use:   "reshard --to N",
		Short: "Divide what instances of the relay share into another number of shards",
		Long: `Divide what instances of the relay share into another number of shards.

Stop all instances first: it refuses while one runs, and one that was killed counts
as running for relay.session_timeout. Then start them with relay.shards set to the
new number; they go on where the others were, and nothing is lost or published twice.
One that is started with another number refuses to work, and says so.

The number is written into the table relay_sharing, then the topic
outbox.relay.NAME.shards gets as many partitions: partitions are added, or, for
fewer, it is deleted and made anew; nothing is ever in it. If this is interrupted,
no instance works before it was done once more, with this number or another one.
The Kafka user needs the right ALTER, or for fewer DELETE and CREATE, on that topic,
and DESCRIBE on the group.

What would be done is shown first. On a terminal it asks; elsewhere it needs --yes.
What was asked for is kept in the audit (GET /v1/dlq/audit).

Exit status: 0 it is divided so; 1 it failed, or instances run; 2 the command line or
the configuration is wrong.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			if f.to < 1 || f.to > share.MaxShards {
				return cli.Usage(fmt.Errorf("--to %d: write a number from 1 to %d; an instance that is to be alone (relay.shards 0) needs none", f.to, share.MaxShards))
			}
			return reshard(c, cmd, &f)
		}),
	}
	cmd.Flags().IntVar(&f.to, "to", 0, "the new number of shards")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "audit")
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
	if err := admin.Audited(ctx, session, c.Scylla.Keyspace, log, change, func(ctx context.Context) error { return r.Run(ctx, by.Name) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "relay %s is divided into %s: set relay.shards to %d in all instances, and start them\n", r.Name, cli.Plural(r.To, "shard"), r.To)
	return err
}
