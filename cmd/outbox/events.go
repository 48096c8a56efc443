package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

func newEventsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print the history of an event",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEventsGetCommand())
	return cmd
}

func newEventsGetCommand() *cobra.Command {
	var aggregate, output string
	cmd := &cobra.Command{
		Use:   "get EVENT_ID",
		Short: "Print the history of an event and its state in subscriptions",
		Long: `Print the history of an event: its outbox row, its record, its dead letter, and its state
in each subscription of its topic. The topics are read from about the time when the
event was stored, up to a limit; what was not found or not read is listed.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeDeadLetters,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			return withAPI(cmd, "", func(api *operatorAPI) error {
				b, err := api.Event(cmd.Context(), args[0], aggregate)
				if err != nil {
					return err
				}
				if output != "table" {
					return cli.PrintAs(cmd.OutOrStdout(), output, b)
				}
				return printEvent(cmd.OutOrStdout(), &b)
			})
		},
	}
	cmd.Flags().StringVar(&aggregate, "aggregate", "", "aggregate id, which finds the outbox row")
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionAPI)
	return cmd
}

func printEvent(out io.Writer, b *admin.BiographyBody) error {
	columns := cli.NewColumns(out)
	field := cli.FieldsOn(columns)
	field("event", b.EventID)
	field("type", b.EventType)
	field("aggregate", b.AggregateID)
	field("sequence", b.Sequence)
	field("captured", b.Captured)
	field("attempts", b.Attempts)
	field("dead letter", b.DeadLetterID)
	field("edit of", b.EditOf)
	field("edited to", b.EditedTo)
	fmt.Fprintln(columns, "\nTIME\tSTEP\tDETAIL")
	for _, s := range b.Steps {
		at := "unknown"
		if s.At != nil {
			at = s.At.UTC().Format(cli.ListTime)
		}
		fmt.Fprintf(columns, "%s\t%s\t%s\n", at, s.What, cli.Clean(s.Detail, 160))
	}
	if len(b.Subscriptions) > 0 {
		fmt.Fprintln(columns, "\nSUBSCRIPTION\tSTATE\tATTEMPTS\tDETAIL")
		for i := range b.Subscriptions {
			p := &b.Subscriptions[i]
			fmt.Fprintf(columns, "%s\t%s\t%d\t%s\n", p.Subscription, p.State, p.Attempts, cli.Clean(progressOf(p), 160))
		}
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	for _, gap := range b.Gaps {
		if _, err := fmt.Fprintln(out, cli.Clean(gap, 0)); err != nil {
			return err
		}
	}
	return nil
}

// progressOf returns the members of a state that are set, in one line.
func progressOf(p *subscriptions.Progress) string {
	var parts []string
	at := func(what string, t time.Time) {
		if !t.IsZero() {
			parts = append(parts, what+" "+t.UTC().Format(time.RFC3339))
		}
	}
	at("leased until", p.LeaseUntil)
	at("next attempt", p.NextAttempt)
	at("processed at", p.ProcessedAt)
	at("processed before", p.ProcessedBefore)
	for _, text := range []string{p.DeadLetter, p.Error, p.Detail} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "; ")
}
