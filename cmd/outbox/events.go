package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

func newEventsCommand() *cobra.Command {
	var limit int
	cmd := query[admin.AggregateBody]{
		sections: []string{app.SectionKafka},
		check: func([]string) error {
			if limit < 1 || limit > maxTimeline {
				return cli.Usage(fmt.Errorf("--limit %d: use 1 to %d", limit, maxTimeline))
			}
			return nil
		},
		read: func(ctx context.Context, api *operatorAPI, args []string) (admin.AggregateBody, error) {
			return api.Aggregate(ctx, args[0], limit)
		},
	}.command(&cobra.Command{
		Use:   "events [AGGREGATE_ID]",
		Short: "Print the timeline of an aggregate, or the history of an event",
		Long: `Print the timeline of an aggregate, newest first: its outbox rows, its records, its dead
letters with their changes, and its scheduled messages. Read are up to 10,000 rows, 200
dead letters, 100 scheduled messages, and the newest 100,000 records since its first row
or dead letter; what was not read is listed.`,
		Args: cobra.MaximumNArgs(1),
	}, printAggregate)
	read := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return read(cmd, args)
	}
	cmd.Flags().IntVar(&limit, "limit", 200, "number of entries, the newest ones; at most 1000")
	cmd.AddCommand(newEventsGetCommand(), newEventsListCommand())
	return cmd
}

// maxTimeline is the most entries of a timeline.
const maxTimeline = 1000

func printAggregate(out io.Writer, a *admin.AggregateBody) error {
	columns := cli.NewColumns(out)
	fmt.Fprintln(columns, "TIME\tSTEP\tEVENT\tTYPE\tSEQ\tPLACE\tDETAIL")
	for i := range a.Entries {
		e := &a.Entries[i]
		at, sequence, what := "unknown", "", e.What
		if e.At != nil {
			at = e.At.UTC().Format(cli.ListTime)
		}
		if e.Sequence > 0 {
			sequence = fmt.Sprint(e.Sequence)
		}
		if e.Kind == "dead_letter_changed" {
			what = "dead letter: " + e.What
		}
		fmt.Fprintf(columns, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", at, what, cmp.Or(e.EventID, e.MessageID), cli.Clean(e.EventType, 40), sequence, formatPlace(e.Topic, e.Partition, e.Offset), cli.Clean(e.Detail, 120))
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	if a.Next != "" {
		fmt.Fprintf(out, "only the newest %d entries; --limit shows up to %d\n", len(a.Entries), maxTimeline)
	}
	return printGaps(out, a.Gaps)
}

// formatPlace returns a place in a topic, or the topic alone.
func formatPlace(topic string, partition *int32, offset *int64) string {
	if partition == nil || offset == nil {
		return cli.Clean(topic, 60)
	}
	return fmt.Sprintf("%s[%d]@%d", cli.Clean(topic, 60), *partition, *offset)
}

func printGaps(out io.Writer, gaps []string) error {
	for _, gap := range gaps {
		if _, err := fmt.Fprintln(out, cli.Clean(gap, 0)); err != nil {
			return err
		}
	}
	return nil
}

// recentEventTable prints events as a list.
var recentEventTable = cli.Table[admin.RecentEvent]{
	Header: "EVENT\tSTATE\tTYPE\tAGGREGATE\tSEQ\tWRITTEN\tPLACE\tTABLE",
	Wide:   1,
	Row: func(w io.Writer, e admin.RecentEvent) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", e.EventID, strings.ReplaceAll(e.State, "_", " "), cli.Clean(e.EventType, 40), cli.Clean(e.AggregateID, 40), e.Sequence,
			cli.At(w, e.WrittenAt), formatPlace(e.Topic, e.Partition, e.Offset), cli.Clean(e.Table, 60))
	},
	None: "no event matches",
}

func newEventsListCommand() *cobra.Command {
	var state, since string
	var from time.Time
	var paging adminclient.Paging
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the newest events of the outbox: waiting, published, dead letters",
		Long: `List the newest events of the outbox with their state: waiting, published, dead_letter or unknown.
They are read from the CDC log: those of the last hour or, where no relay reads it, since
its last heartbeat, up to 10,000 of each table, with the newest 100,000 records. What was
not read is listed.`,
	}
	cmd.Flags().StringVar(&state, "state", "", "events in this state: waiting, published or dead_letter")
	cmd.Flags().StringVar(&since, "since", "", "events written since a date, a time (RFC 3339) or an age such as 5m; UTC")
	cmd.Flags().IntVar(&paging.Limit, "limit", 100, "maximum number of events, newest first; 0 is all")
	cli.CursorFlag(cmd, &paging.Cursor)
	return newListCommand(cmd, recentEventTable, query[page[admin.RecentEvent]]{
		sections: []string{app.SectionKafka},
		check: func([]string) (err error) {
			switch {
			case paging.Limit < 0:
				return cli.Usage(fmt.Errorf("--limit %d must not be negative", paging.Limit))
			case !slices.Contains([]string{"", "waiting", "published", "dead_letter", "unknown"}, state):
				return cli.Usage(fmt.Errorf("--state %q: use waiting, published, dead_letter or unknown", state))
			case since != "":
				if from, _, err = cli.DateOrTime(since, time.Now()); err != nil {
					return cli.Usage(fmt.Errorf("--since %w", err))
				}
			}
			return nil
		},
		read: func(ctx context.Context, api *operatorAPI, _ []string) (p page[admin.RecentEvent], err error) {
			p.entries, p.notes, p.next, err = api.RecentEvents(ctx, state, from, paging)
			return p, err
		},
	})
}

func newEventsGetCommand() *cobra.Command {
	var aggregate string
	cmd := query[admin.BiographyBody]{
		sections: []string{app.SectionKafka},
		read: func(ctx context.Context, api *operatorAPI, args []string) (admin.BiographyBody, error) {
			return api.Event(ctx, args[0], aggregate)
		},
	}.command(&cobra.Command{
		Use:   "get EVENT_ID",
		Short: "Print the history of an event and its state in subscriptions",
		Long: `Print the history of an event: its outbox row, its record, its dead letter, and its state
in each subscription of its topic. The topics are read from about the time when the
event was stored, up to a limit; what was not found or not read is listed.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeDeadLetters,
	}, printEvent)
	cmd.Flags().StringVar(&aggregate, "aggregate-id", "", "aggregate id, which finds the outbox row")
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
			fmt.Fprintf(columns, "%s\t%s\t%d\t%s\n", p.Subscription, p.State, p.Attempts, cli.Clean(formatProgress(p), 160))
		}
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	return printGaps(out, b.Gaps)
}

// formatProgress returns the members of a state that are set, in one line.
func formatProgress(p *subscriptions.Progress) string {
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
