package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/redeliver"
)

// redeliverFlags contains the flags of outbox subscriptions redeliver.
type redeliverFlags struct {
	dlqConfirm
	dlqActor
	dlqRun
	body   admin.RedeliverBody
	period cli.Listing
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

The command prints a preview first, of what it reads of the topics within 20 seconds. A job
then reads them from --since on, or all that they contain, at most 10000000 records in 30
minutes. It makes a dead letter of the class redelivery of each message, which blocks
nothing, and replays them to this subscription alone: one message of a key at a time, with
deliveries counted from zero. The acknowledgement resolves the dead letter; after
max_receive failures it is suspended.

Messages that are not settled are delivered anyway, and are left out; so are those with an
open dead letter, which 'outbox dlq replay' delivers, and messages after the preview.

Without --api-admin-url the command needs the database and Kafka.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSubscriptions,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.body.Key, "key", "", "messages with this record key")
	fl.StringVar(&f.body.Filter, "filter", "", "messages for which this expression is true, as in the filter of a subscription")
	fl.StringVar(&f.period.Since, "since", "", "messages written since a date, a time (RFC 3339) or an age such as 24h; UTC")
	fl.StringVar(&f.period.Until, "until", "", "messages written before; a date includes its day")
	fl.StringVar(&f.body.Topic, "topic", "", "only this topic of the subscription")
	fl.Float64Var(&f.body.Rate, "rate", 0, "maximum number of messages per second; 0 is no limit")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "history and the audit trail")
	f.dlqRun.addFlags(cmd, true)
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionAPI)
	return cmd
}

// check returns the errors of usage, and completes the request.
func (f *redeliverFlags) check(name string) (err error) {
	if err := errors.Join(subscriptions.CheckName(name), f.requireReason(f.dryRun)); err != nil {
		return cli.Usage(err)
	}
	if f.body.Rate < 0 {
		return cli.Usage(fmt.Errorf("--rate %v must not be negative", f.body.Rate))
	}
	if f.body.Since, f.body.Until, err = f.period.Span(time.Now()); err != nil {
		return err
	}
	if f.body.Key == "" && f.body.Filter == "" && f.body.Since.IsZero() {
		return cli.Usage(errors.New("no slice is selected: use --key, --filter or --since; seek moves whole partitions"))
	}
	f.body.Follow = f.follow()
	return nil
}

func (f *redeliverFlags) run(cmd *cobra.Command, name string) error {
	if err := f.check(name); err != nil {
		return err
	}
	return withAPIOf(cmd, f.actor, []schema.Component{schema.DeadLetters, schema.Subscriptions}, func(api *operatorAPI) error {
		plan, err := api.PreviewRedelivery(cmd.Context(), name, f.body)
		if err != nil {
			return err
		}
		if f.output == "table" || !f.dryRun {
			printRedelivery(cmd, &plan)
		}
		if f.dryRun || plan.Messages == 0 && !plan.Truncated {
			if f.output == "table" {
				return nil
			}
			return cli.PrintAs(cmd.OutOrStdout(), f.output, plan)
		}
		if err := f.confirm(cmd, fmt.Sprintf("deliver %s to %s once more?", formatNumber(&plan), name)); err != nil {
			return err
		}
		f.body.Slice = plan.Slice
		return f.deliver(cmd, api, name)
	})
}

// deliver creates the job and runs it.
func (f *redeliverFlags) deliver(cmd *cobra.Command, api *operatorAPI, name string) error {
	made, err := api.Redeliver(cmd.Context(), name, f.body, f.reason)
	if err != nil {
		return err
	}
	var interrupted error
	if !f.detach {
		made, interrupted = api.finish(cmd, made)
	}
	if f.output != "table" {
		err = cli.PrintAs(cmd.OutOrStdout(), f.output, made)
	} else {
		printReport(cmd.OutOrStdout(), &made)
	}
	if err := errors.Join(err, interrupted); err != nil {
		return err
	}
	return jobStatus(&made)
}

// formatNumber returns the number of messages of a preview as a text.
func formatNumber(p *redeliver.Plan) string {
	if p.Truncated {
		return fmt.Sprintf("at least %s", cli.Plural(p.Messages, "message"))
	}
	return cli.Plural(p.Messages, "message")
}

func printRedelivery(cmd *cobra.Command, p *redeliver.Plan) {
	w := cmd.ErrOrStderr()
	fmt.Fprintf(w, "redeliver %s of %s to subscription %s; %d records read\n", formatNumber(p), cli.Plural(p.Keys, "key"), p.Subscription, p.Records)
	if p.Messages > 0 {
		fmt.Fprintf(w, "written from %s to %s\n", p.First.UTC().Format(time.RFC3339), p.Last.UTC().Format(time.RFC3339))
	}
	byPartition := make(map[string]int, len(p.Partitions))
	for _, x := range p.Partitions {
		byPartition[fmt.Sprintf("%s[%d] from offset %d to %d", x.Topic, x.Partition, x.First, x.Last)] = x.Messages
	}
	counts(w, "by partition", byPartition)
	if p.Problem != "" {
		fmt.Fprintln(w, cli.Clean(p.Problem, 0))
	}
	if p.Truncated {
		fmt.Fprintln(w, "the topics have more records than the preview has read; the job reads them")
	}
	if p.Paused {
		fmt.Fprintln(w, "the subscription is paused: the messages are delivered once it is resumed")
	}
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
