package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq/api"
	"github.com/scylla-outbox/scylla-outbox/relay"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			if f.to < 1 || f.to > share.MaxShards {
				return usageError{fmt.Errorf("--to %d: write a number from 1 to %d; an instance that is to be alone (relay.shards 0) needs none", f.to, share.MaxShards)}
			}
			return c.reshard(cmd, &f)
		},
	}
	cmd.Flags().IntVar(&f.to, "to", 0, "the new number of shards")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "audit")
	addFlags(cmd, sectionScylla, sectionKafka, sectionRelay, sectionLog)
	return cmd
}

// resharding changes into how many shards a relay is divided.
type resharding struct {
	name      string // of the relay
	to        int
	agreement relay.Agreement
	control   share.Control

	agreed int // 0 if none ever was
	state  share.State
	alive  []string

	// made, if not nil, is told of each step that was made; an error ends everything
	// there, as a kill would.
	made func(step string) error
}

var (
	// errInstancesRun says that instances have to be stopped first.
	errInstancesRun = errors.New("instances of the relay run")
	// errSomebodyElse says that there are two who change the number.
	errSomebodyElse = errors.New("somebody else has changed the number of shards meanwhile")
)

func (c *config) reshard(cmd *cobra.Command, f *reshardFlags) error {
	ctx := cmd.Context()
	log, err := c.Log.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	session, client, disconnect, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	r := c.resharding(session, client, f.to)
	if err := r.look(ctx); err != nil {
		return err
	}
	r.preview(cmd.ErrOrStderr())
	if r.isDone() {
		return nil
	}
	if err := r.refuse(); err != nil || f.dryRun {
		return err
	}
	if err := f.confirm(cmd, fmt.Sprintf("divide relay %s into %s?", r.name, plural(r.to, "shard"))); err != nil {
		return err
	}
	by := f.by()
	change := api.Change{Actor: by.Name, Action: "reshard-relay", Target: r.name, Detail: fmt.Sprintf(`{"from":%d,"to":%d}`, r.from(), r.to), Reason: by.Reason}
	if err := api.Audited(ctx, session, c.Scylla.Keyspace, log, change, func(ctx context.Context) error { return r.run(ctx, by.Name) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "relay %s is divided into %s: set relay.shards to %d in all instances, and start them\n", r.name, plural(r.to, "shard"), r.to)
	return err
}

// resharding is the change to so many shards, of the configured relay.
func (c *config) resharding(session *gocql.Session, client *kgo.Client, to int) *resharding {
	return &resharding{
		name: c.Relay.Name, to: to,
		agreement: relay.Agreement{Session: session, Keyspace: c.Scylla.Keyspace, Name: c.Relay.Name},
		control:   share.Control{Client: client, Name: groupOf(c.Relay.Name), Replication: c.Relay.TopicReplication},
	}
}

// groupOf is the name of the group of instances that share a relay.
func groupOf(name string) string { return "outbox.relay." + name }

// look finds out how things are.
func (r *resharding) look(ctx context.Context) (err error) {
	if r.agreed, err = r.agreement.Shards(ctx); err != nil {
		return err
	}
	if r.state, err = r.control.State(ctx); err != nil {
		return err
	}
	r.alive, err = r.agreement.Alive(ctx)
	return err
}

// from is the number of shards so far, 0 if the relay was never shared.
func (r *resharding) from() int {
	if r.agreed > 0 {
		return r.agreed
	}
	return r.state.Partitions
}

// isDone says that there is nothing to do.
func (r *resharding) isDone() bool { return r.agreed == r.to && r.state.Partitions == r.to }

// refuse says who has to be stopped first. Instances that have the new number, as
// after a change that was begun beside them, need not.
func (r *resharding) refuse() error {
	if r.state.Partitions == r.to || len(r.state.Members)+len(r.alive) == 0 {
		return nil
	}
	who := append([]string(nil), r.alive...)
	if len(who) == 0 {
		who = append(who, r.state.Members...)
	}
	return withHint(fmt.Errorf("%w: %s", errInstancesRun, strings.Join(who, ", ")),
		"stop all instances of relay %s and run this again; one that was killed stays in the broker's group for relay.session_timeout", r.name)
}

func (r *resharding) preview(w io.Writer) {
	fmt.Fprintf(w, "relay %s\n", r.name)
	number := func(n int, of string) string {
		if n == 0 {
			return "none"
		}
		return plural(n, of)
	}
	fmt.Fprintf(w, "  agreed on           %s (relay_sharing)\n", number(r.agreed, "shard"))
	fmt.Fprintf(w, "  control topic       %s (%s)\n", number(r.state.Partitions, "partition"), r.control.Topic())
	fmt.Fprintf(w, "  instances that run  %d in the broker's group, %d heard of in the database\n", len(r.state.Members), len(r.alive))
	switch n := r.state.Partitions; {
	case r.isDone():
		fmt.Fprintf(w, "it is divided into %s already\n", plural(r.to, "shard"))
	case n == 0:
		fmt.Fprintf(w, "to do: agree on %d, make the topic\n", r.to)
	case n == r.to:
		fmt.Fprintf(w, "to do: agree on %d\n", r.to)
	case n < r.to:
		fmt.Fprintf(w, "to do: agree on %d, add %s to the topic\n", r.to, plural(r.to-n, "partition"))
	default:
		fmt.Fprintf(w, "to do: agree on %d, delete the topic, in which there is nothing, and make it with %s\n", r.to, plural(r.to, "partition"))
	}
}

func (r *resharding) step(name string) error {
	if r.made == nil {
		return nil
	}
	return r.made(name)
}

// run makes the change.
//
// First it is agreed on the new number, so an instance of the old one that begins now
// carries nothing any more: it asks when it is in the group. One that was there before
// is seen in the group after that, and then all stays as it was. Only then the topic is
// touched. Wherever this ends, instances of the old number refuse from the first step
// on, and those of the new one until the last.
func (r *resharding) run(ctx context.Context, by string) error {
	if r.agreed != r.to {
		now, err := r.agreement.Change(ctx, r.agreed, r.to, by)
		if err != nil {
			return fmt.Errorf("%w; run this again", err)
		}
		if now != r.to {
			return fmt.Errorf("%w, to %d: run this again", errSomebodyElse, now)
		}
		if err := r.step("agreed"); err != nil {
			return err
		}
	}
	state, err := r.control.State(ctx)
	if err != nil {
		return fmt.Errorf("%w; run this again", err)
	}
	if len(state.Members) > 0 && state.Partitions != r.to {
		err := fmt.Errorf("%w: one began meanwhile, from %s", errInstancesRun, strings.Join(state.Members, ", "))
		_, back := r.agreement.Change(ctx, r.to, r.agreed, by)
		return withHint(errors.Join(err, back), "stop all instances of relay %s and run this again", r.name)
	}
	err = r.stillAgreed(ctx)
	if err == nil {
		err = r.control.Divide(ctx, r.to, func(step string) error {
			if err := r.step(step); err != nil {
				return err
			}
			return r.stillAgreed(ctx)
		})
	}
	if err != nil && !errors.Is(err, errSomebodyElse) {
		err = fmt.Errorf("it is agreed on %d shards, and no instance works before the topic has as many partitions: %w; run this again", r.to, err)
	}
	return err
}

// stillAgreed returns an error if somebody else has agreed on another number: the topic
// is then theirs to divide.
func (r *resharding) stillAgreed(ctx context.Context) error {
	now, err := r.agreement.Shards(ctx)
	if err == nil && now != r.to {
		err = fmt.Errorf("%w, to %d: run this again", errSomebodyElse, now)
	}
	return err
}
