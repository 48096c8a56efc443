package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// dlqListed is the default of --limit.
const dlqListed = 100

func newDLQListCommand() *cobra.Command {
	var f dlqFilter
	var filter dlq.Filter
	var withPayload bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List open dead letters, latest first failure first",
		Long: `List dead letters, latest first failure first. Without --status it lists open ones:
those that wait for a replay or for an operator, or with --outcome resolved and archived
ones. --status all lists all of them.`,
	}
	f.addFlags(cmd, dlqListed)
	cli.CursorFlag(cmd, &f.Cursor)
	cmd.Flags().BoolVar(&withPayload, "with-payload", false, "add the payloads, as the events had them; with -o json or -o yaml")
	return newListCommand(cmd, deadLetterTable, query[page[admin.ListedDeadLetter]]{
		check: func([]string) (err error) {
			switch {
			case len(f.statuses) == 0 && f.outcome != "":
				f.statuses = []string{string(dlq.Resolved), string(dlq.Archived)}
			case len(f.statuses) == 0:
				f.statuses = []string{statusOpen}
			case slices.Equal(f.statuses, []string{statusAll}):
				f.statuses = nil
			}
			if filter, err = f.filter(time.Now()); err == nil && withPayload && cmd.Flag("output").Value.String() == "table" {
				err = cli.Usage(errors.New("--with-payload needs -o json or -o yaml"))
			}
			return err
		},
		read: func(ctx context.Context, api *operatorAPI, _ []string) (p page[admin.ListedDeadLetter], err error) {
			list := api.DeadLetters
			if withPayload {
				list = api.DeadLettersWithPayload
			}
			p.entries, p.next, err = list(ctx, filter, f.paging())
			return p, err
		},
	})
}

func newDLQGetCommand() *cobra.Command {
	return newGetCommand(&cobra.Command{
		Use:               "get EVENT_ID",
		Short:             "Print a dead letter: event, error, history and blocked events",
		ValidArgsFunction: completeDeadLetters,
	}, schema.DeadLetters, (*operatorAPI).DeadLetter, printShown)
}

func printShown(w io.Writer, l *admin.DeadLetterBody) error {
	if err := printDeadLetter(w, l); err != nil {
		return err
	}
	tw := cli.NewColumns(w)
	if e := l.Edit; e != nil {
		elsewhere := ""
		if e.Topic != "" {
			elsewhere = " to topic " + cli.Clean(e.Topic, 0)
		}
		fmt.Fprintf(w, "\nedited by %s at %s, to be published as event %s in its place%s: %s\n", cli.Clean(e.By, 40), e.At.Format(time.RFC3339), l.EditedTo, elsewhere, cli.Clean(e.Reason, 120))
		original, edited := contents(l)
		diff := dlq.Diff(original, edited)
		printDifference(w, &diff)
	}
	if l.Position > 0 {
		fmt.Fprintf(w, "\nnumber %d of %s of the aggregate\n", l.Position, cli.Plural(l.ChainLength, "open dead letter"))
	}
	if l.Position > 1 {
		fmt.Fprintf(w, "earlier ones are published first: outbox dlq list --aggregate-id %s\n", cli.Clean(l.AggregateID, 0))
	}
	if l.FollowerCount > 0 {
		fmt.Fprintf(w, "\nevents that it blocks: %d\n", l.FollowerCount)
		for _, e := range l.Followers {
			fmt.Fprintf(tw, "  %d\t%s\t%s\t%s\n", e.Sequence, e.EventID, cli.Clean(e.EventType, 40), e.Status)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\nhistory:\n")
	for _, c := range l.History {
		way := string(c.To)
		if c.From != "" {
			way = string(c.From) + " -> " + way
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", c.At.UTC().Format(time.RFC3339), c.Action, way, cli.Clean(c.By, 40), cli.Clean(c.Outcome, 80), cli.Clean(c.Why, 120))
	}
	return tw.Flush()
}

// contents returns the original content of a dead letter, and the one that is published: the
// edited content, if there is one.
func contents(l *admin.DeadLetterBody) (original, published dlq.Edit) {
	original = dlq.Edit{Payload: decodePayload(l.PayloadText, l.PayloadBase64), ContentType: l.ContentType, Headers: l.Headers}
	if e := l.Edit; e != nil {
		return original, dlq.Edit{Payload: decodePayload(e.PayloadText, e.PayloadBase64), ContentType: e.ContentType, Headers: e.Headers}
	}
	return original, original
}

// decodePayload returns the bytes of a payload, nil for a null one.
func decodePayload(text, coded *string) []byte {
	if text != nil {
		return []byte(*text)
	}
	if coded == nil {
		return nil
	}
	b, _ := base64.StdEncoding.DecodeString(*coded) // the server has encoded it
	return b
}

// printDeadLetter prints a dead letter, one field per line.
func printDeadLetter(w io.Writer, l *admin.DeadLetterBody) error {
	tw := cli.NewColumns(w)
	field := cli.FieldsOn(tw)
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.Format(time.RFC3339Nano)
	}
	field("event", l.EventID)
	status := string(l.Status)
	if l.Unblocked {
		status += ", unblocked: later events of the aggregate do not wait for it"
	}
	field("status", status)
	field("priority", l.Priority)
	field("tags", strings.Join(l.Tags, ", "))
	if o := l.Outcome; o != nil {
		text := string(o.Kind)
		if o.Partition != nil && o.Offset != nil {
			text = dlq.Outcome{Kind: o.Kind, Topic: o.Topic, Partition: *o.Partition, Offset: *o.Offset}.String()
		}
		field("outcome", text)
		field("note", o.Note)
	}
	field("resolved at", at(l.ResolvedAt))
	field("archived in", l.ArchiveObject)
	field("claimed by", l.ClaimedBy)
	field("claimed until", at(l.ClaimedUntil))
	field("published as", l.EditedTo)
	field("type", l.EventType)
	field("aggregate", strings.TrimSpace(l.AggregateType+" "+l.AggregateID))
	field("sequence", l.Sequence)
	field("table", l.Table)
	field("topic", l.Topic)
	field("created at", at(l.CreatedAt))
	field("deliver at", at(l.DeliverAt))
	field("error", l.ErrorClass)
	field("code", l.ErrorCode)
	field("message", l.ErrorText)
	for i, e := range l.ErrorChain {
		field(fmt.Sprintf("cause %d", i+1), e)
	}
	field("attempts", fmt.Sprintf("%d, and %d failed replays", l.Attempts, l.Replays))
	field("first failed at", at(&l.FirstFailedAt))
	field("last failed at", at(l.LastFailedAt))
	strategy := l.Strategy
	if l.Rule != "" {
		strategy += ", by the rule " + l.Rule
	}
	field("strategy", strategy)
	field("next attempt", at(l.NextAttempt))
	field("waits for", l.WaitsFor)
	for _, m := range []struct {
		name   string
		values map[string]string
	}{{"header", l.Headers}, {"at failure", l.Metadata}, {"row", l.Raw}} {
		for _, k := range slices.Sorted(maps.Keys(m.values)) {
			field(m.name+" "+cli.Clean(k, 0), m.values[k])
		}
	}
	field("content type", l.ContentType)
	switch payload := decodePayload(l.PayloadText, l.PayloadBase64); {
	case l.PayloadText != nil:
		field("payload", *l.PayloadText)
	case payload != nil:
		field("payload", fmt.Sprintf("%d bytes, not text: 0x%x", len(payload), payload[:min(len(payload), 64)]))
	}
	return tw.Flush()
}

func newDLQStatsCommand() *cobra.Command {
	return query[admin.StatsBody]{
		read: func(ctx context.Context, api *operatorAPI, _ []string) (admin.StatsBody, error) {
			return api.Stats(ctx)
		},
	}.command(&cobra.Command{
		Use:   "stats",
		Short: "Count dead letters by status, error class and event type",
		Args:  cobra.NoArgs,
	}, func(w io.Writer, st *admin.StatsBody) error {
		fmt.Fprintf(w, "%d open", st.Open)
		if st.Oldest != nil {
			fmt.Fprintf(w, ", the oldest since %s (%s)", st.Oldest.Format(cli.ListTime), time.Since(*st.Oldest).Round(time.Second))
		}
		fmt.Fprintln(w)
		counts(w, "by status", st.ByStatus)
		causes(w, "open, by error", st.Causes)
		counts(w, "open, by event type", st.OpenByType)
		return nil
	})
}
