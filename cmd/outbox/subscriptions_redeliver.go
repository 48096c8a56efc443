package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/redeliver"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// redeliverFlags contains the flags of outbox subscriptions redeliver.
type redeliverFlags struct {
	dlqConfirm
	dlqActor
	dlqRun
	slice  redeliver.Slice
	period cli.Listing
	rate   float64
	output string
}

func newSubscriptionsRedeliverCommand() *cobra.Command {
	var f redeliverFlags
	cmd := &cobra.Command{
		Use:   "redeliver NAME",
		Short: "Deliver messages of a key, a filter or a time once more",
		Long: `Deliver settled messages of a subscription once more, such as after a fault of its
consumer: those of a key, of a filter or of a time, at most 10000. 'seek' moves whole
partitions instead.

The command reads the topics and prints a preview first. It makes a dead letter of the
class redelivery of each message, which blocks nothing, and a job replays them to this
subscription alone: one message of a key at a time, with deliveries counted from zero. The
acknowledgement resolves the dead letter; after max_receive failures it is suspended.

Messages that are not settled are delivered anyway, and are left out; so are those with an
open dead letter, which 'outbox dlq replay' delivers. After an interruption run the same
command again: it delivers in order what it has written.

The command needs the database and Kafka, and has no --api-admin-url: it reads the topics
from --since on, or all that they contain.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              app.WithConfig(func(cmd *cobra.Command, c *app.Config) error { return f.run(cmd, c, cmd.Flags().Arg(0)) }),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.slice.Key, "key", "", "messages with this record key")
	fl.StringVar(&f.slice.Filter, "filter", "", "messages for which this expression is true, as in the filter of a subscription")
	fl.StringVar(&f.period.Since, "since", "", "messages written since a date, a time (RFC 3339) or an age such as 24h; UTC")
	fl.StringVar(&f.period.Until, "until", "", "messages written before; a date includes its day")
	fl.StringVar(&f.slice.Topic, "topic", "", "only this topic of the subscription")
	fl.Float64Var(&f.rate, "rate", 0, "maximum number of messages per second; 0 is no limit")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "history and the audit trail")
	f.dlqRun.addFlags(cmd, true)
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka)
	return cmd
}

// check returns the errors of usage.
func (f *redeliverFlags) check(name string) (err error) {
	if err := errors.Join(subscriptions.CheckName(name), cli.CheckOutput(f.output), f.requireReason(f.dryRun)); err != nil {
		return cli.Usage(err)
	}
	if f.rate < 0 {
		return cli.Usage(fmt.Errorf("--rate %v must not be negative", f.rate))
	}
	if f.slice.Since, f.slice.Until, err = f.period.Span(time.Now()); err != nil {
		return err
	}
	if err := f.slice.Validate(); err != nil {
		return cli.Usage(cli.WithHint(err, "use --key, --filter or --since"))
	}
	return nil
}

func (f *redeliverFlags) run(cmd *cobra.Command, c *app.Config, name string) error {
	if err := f.check(name); err != nil {
		return err
	}
	ctx := cmd.Context()
	c.Scylla.Need(schema.DeadLetters, schema.Subscriptions)
	session, _, disconnect, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	conf := redeliver.Config{Kafka: c.Kafka.Client}
	if conf.DeadLetters, err = dlq.Open(session, c.Scylla.Keyspace, c.DLQOptions()...); err != nil {
		return err
	}
	if conf.Store, err = store.Open(session, c.Scylla.Keyspace); err != nil {
		return err
	}
	if conf.Schemas, err = c.Kafka.SchemaRegistry(); err != nil {
		return err
	}
	r, plan, err := redeliver.Find(ctx, conf, name, f.slice)
	if errors.Is(err, subscriptions.ErrNotFound) {
		return cli.WithHint(err, "outbox subscriptions list shows the subscriptions of this keyspace")
	}
	if err != nil {
		return err
	}
	if f.output == "table" || !f.dryRun {
		printRedelivery(cmd, plan)
	}
	if f.dryRun || plan.Messages == 0 {
		if f.output == "table" {
			return nil
		}
		return cli.PrintAs(cmd.OutOrStdout(), f.output, plan)
	}
	if err := f.confirm(cmd, fmt.Sprintf("deliver %s to %s once more?", cli.Plural(plan.Messages, "message"), name)); err != nil {
		return err
	}
	ids, err := f.write(cmd, c, session, r, plan)
	if err != nil {
		return f.again(err)
	}
	return withLocalAPI(cmd, c, f.actorName(), nil, func(api *operatorAPI) error { return f.deliver(cmd, api, ids) })
}

// write writes the dead letters of the messages, with an entry in the audit trail.
func (f *redeliverFlags) write(cmd *cobra.Command, c *app.Config, session *gocql.Session, r *redeliver.Redelivery, plan *redeliver.Plan) (ids []gocql.UUID, err error) {
	by := dlq.Actor{Name: f.actorName(), Reason: f.reason}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	change := admin.Change{Actor: by.Name, Action: "redeliver-subscription", Target: plan.Subscription, Reason: by.Reason, Detail: plan.Slice}
	err = c.Trail(session, log).Record(cmd.Context(), change, func(ctx context.Context) (any, error) {
		if ids, err = r.Write(ctx, plan, by); err != nil {
			return nil, err
		}
		return map[string]int{"messages": len(ids)}, nil
	})
	return ids, err
}

// deliver creates the job that replays the dead letters, and runs it.
func (f *redeliverFlags) deliver(cmd *cobra.Command, api *operatorAPI, ids []gocql.UUID) error {
	job := admin.NewJobBody{JobTarget: admin.JobTarget{Action: dlq.ActionReplay, Rate: f.rate, InOrder: true}, Follow: f.follow()}
	for _, id := range ids {
		job.IDs = append(job.IDs, id.String())
	}
	made, err := api.CreateJob(cmd.Context(), job, f.reason)
	if err != nil {
		return f.again(err)
	}
	var interrupted error
	if !f.detach {
		made, interrupted = api.finish(cmd, made)
	}
	if f.output != "table" {
		err = cli.PrintAs(cmd.OutOrStdout(), f.output, made)
	} else {
		p := &made.Progress
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d acknowledged, %d failed again, %d still waiting\njob %s is %s\n", p.Replayed, made.Failed, len(ids)-p.Replayed-made.Failed, made.ID, made.State)
	}
	if err := errors.Join(err, interrupted); err != nil {
		return err
	}
	return jobStatus(&made)
}

// again adds to an error before there is a job that a repetition continues. An age is another time
// by then.
func (f *redeliverFlags) again(err error) error {
	since := ""
	if !f.slice.Since.IsZero() {
		since = " with --since " + f.slice.Since.UTC().Format(time.RFC3339)
	}
	return cli.WithHint(err, "run the same command again%s: it delivers in order the messages whose dead letters are written, which no job replays yet", since)
}

func printRedelivery(cmd *cobra.Command, p *redeliver.Plan) {
	w := cmd.ErrOrStderr()
	fmt.Fprintf(w, "redeliver %s of %s to subscription %s; %d records read\n", cli.Plural(p.Messages, "message"), cli.Plural(p.Keys, "key"), p.Subscription, p.Records)
	if p.Messages > 0 {
		fmt.Fprintf(w, "written from %s to %s\n", p.First.UTC().Format(time.RFC3339), p.Last.UTC().Format(time.RFC3339))
	}
	counts(w, "by topic", p.ByTopic)
	if p.Interrupted > 0 {
		fmt.Fprintf(w, "of these from an interrupted redelivery: %s\n", cli.Plural(p.Interrupted, "message"))
	}
	if p.Waiting > 0 {
		fmt.Fprintf(w, "not settled, so delivered anyway: %s\n", cli.Plural(p.Waiting, "message"))
	}
	if p.DeadLetters > 0 {
		fmt.Fprintf(w, "with another open dead letter, which outbox dlq replay delivers: %s\n", cli.Plural(p.DeadLetters, "message"))
	}
}
