package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

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
	to     int
	output string
}

func newReshardCommand() *cobra.Command {
	var f reshardFlags
	cmd := &cobra.Command{
		Use:   "reshard --shards N",
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

The command uses the admin API at --api-admin-url, or without it the database and Kafka. An API
needs the token of an admin (OUTBOX_API_TOKEN); relay.name must be the relay of the
server, whose Kafka user has the rights. Ctrl-C does not interrupt the change.

The command prints a preview first. On a terminal it asks for confirmation; elsewhere
it requires --yes. The audit trail records the change (GET /v1/audit).

Exit status: 0 success; 1 failure, or instances run; 2 wrong command line or
configuration.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			if f.to < 1 || f.to > share.MaxShards {
				return cli.Usage(fmt.Errorf("--shards %d is not allowed; use a number from 1 to %d, where 1 is one active instance and standbys", f.to, share.MaxShards))
			}
			if err := f.requireReason(f.dryRun); err != nil {
				return err
			}
			return withAPIOf(cmd, f.actor, nil, func(api *operatorAPI) error { return f.reshard(cmd, api, c.Relay.Name) })
		}),
	}
	cmd.Flags().IntVar(&f.to, "shards", 0, "new number of shards")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "audit trail")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionRelay, app.SectionAPI)
	return cmd
}

// reshard prints the plan and, after the confirmation, makes the change.
func (f *reshardFlags) reshard(cmd *cobra.Command, api *operatorAPI, relay string) error {
	ctx := cmd.Context()
	found, err := api.Reshard(ctx, relay, admin.ReshardBody{To: f.to, DryRun: true}, "")
	if err != nil {
		return err
	}
	plan := &found.Plan
	printReshardPlan(cmd.ErrOrStderr(), plan)
	if found.Refused != "" && len(plan.Steps) > 0 {
		return cli.WithHint(errors.New(found.Refused), "%s", found.Hint)
	}
	if len(plan.Steps) == 0 || f.dryRun {
		return f.print(cmd, plan, false)
	}
	if err := f.confirm(cmd, fmt.Sprintf("divide relay %s into %s?", plan.Relay, cli.Plural(plan.To, "shard"))); err != nil {
		return err
	}
	if _, err := api.Reshard(ctx, relay, admin.ReshardBody{To: f.to, From: &plan.From}, f.reason); err != nil {
		return err
	}
	return f.print(cmd, plan, true)
}

// print prints the result: the plan, and whether it was made.
func (f *reshardFlags) print(cmd *cobra.Command, plan *admin.ReshardPlan, made bool) error {
	switch {
	case f.output != "table":
		return cli.PrintAs(cmd.OutOrStdout(), f.output, struct {
			Plan    *admin.ReshardPlan `json:"plan"`
			Changed bool               `json:"changed"`
		}{plan, made})
	case !made: // the preview is printed
		return nil
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "relay %s is divided into %s: set relay.shards to %d in all instances, and start them\n", plan.Relay, cli.Plural(plan.To, "shard"), plan.To)
	return err
}

func printReshardPlan(w io.Writer, p *admin.ReshardPlan) {
	number := func(n int, of string) string {
		if n == 0 {
			return "none"
		}
		return cli.Plural(n, of)
	}
	fmt.Fprintf(w, "relay %s\n", cli.Clean(p.Relay, 0))
	fmt.Fprintf(w, "  agreed on           %s (relay_sharing)\n", number(p.Agreed, "shard"))
	fmt.Fprintf(w, "  control topic       %s (%s)\n", number(p.Partitions, "partition"), cli.Clean(p.Topic, 0))
	fmt.Fprintf(w, "  instances that run  %d in the broker's group, %d heard of in the database\n", len(p.Members), len(p.Instances))
	if len(p.Steps) == 0 {
		fmt.Fprintf(w, "it is divided into %s already\n", cli.Plural(p.To, "shard"))
		return
	}
	fmt.Fprintf(w, "to do: %s\n", cli.Clean(strings.Join(p.Steps, ", "), 0))
}
