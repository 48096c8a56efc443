package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// dlqListed is the default of --limit.
const dlqListed = 100

func newDLQListCommand() *cobra.Command {
	var f dlqFilter
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List open dead letters, last failure first",
		Long: `List dead letters, last failure first. Without --status it lists open ones: those that
wait for a replay or for an operator. --status all lists all of them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case len(f.statuses) == 0:
				f.statuses = []string{statusOpen}
			case slices.Equal(f.statuses, []string{statusAll}):
				f.statuses = nil
			}
			filter, err := f.filter(time.Now())
			if err == nil {
				err = cli.CheckOutput(output)
			}
			if err != nil {
				return err
			}
			return withDLQ(cmd, func(s *dlq.Store) error {
				deadLetters, more, err := collect(cmd, s, filter, f.Limit)
				if err != nil {
					return err
				}
				return deadLetterTable.Print(cmd, output, deadLetters, more)
			})
		},
	}
	f.addFlags(cmd, dlqListed)
	cli.ListFlags(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla)
	return cmd
}

// collect reads up to limit dead letters that match filter; more reports that there are
// others.
func collect(cmd *cobra.Command, s *dlq.Store, filter dlq.Filter, limit int) (deadLetters []dlq.DeadLetter, more bool, err error) {
	err = s.List(cmd.Context(), filter, func(l *dlq.DeadLetter) error {
		if limit > 0 && len(deadLetters) == limit {
			more = true
			return dlq.ErrStop
		}
		deadLetters = append(deadLetters, *l)
		return nil
	})
	return deadLetters, more, err
}

// shown is the result of show as JSON.
type shown struct {
	deadLetterView
	History []dlq.Change `json:"history"`
	// Edits are the replacements of the event, oldest first; the last one is published.
	Edits []editView `json:"edits,omitempty"`
	// Chain contains the open dead letters of the aggregate, in order.
	Chain []chainView `json:"chain"`
}

// editView is an edit of a dead letter.
type editView struct {
	EditedID    string            `json:"edited_id"`
	By          string            `json:"by"`
	Reason      string            `json:"reason,omitempty"`
	At          time.Time         `json:"at"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	// Payload is set if the payload is text, PayloadBase64 if not.
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
	// Difference is the difference to the previous content.
	Difference dlq.Difference `json:"difference"`
}

// readEither reads the dead letter with the id of an event, or of one of its edits.
func readEither(ctx context.Context, s *dlq.Store, id gocql.UUID) (dlq.DeadLetter, error) {
	l, err := s.Read(ctx, id)
	if !errors.Is(err, dlq.ErrNotFound) {
		return l, err
	}
	event, editErr := s.OriginalOf(ctx, id)
	switch {
	case errors.Is(editErr, dlq.ErrNotFound):
		return l, err
	case editErr != nil:
		return l, editErr
	}
	return s.Read(ctx, event)
}

// editsOf reads the edits of a dead letter.
func editsOf(ctx context.Context, s *dlq.Store, l *dlq.DeadLetter) (out []editView, err error) {
	if l.Edit == nil {
		return nil, nil
	}
	edits, err := s.Edits(ctx, l.EventID)
	before := dlq.Edit{Payload: l.Payload, ContentType: l.ContentType, Headers: l.Headers}
	for i := range edits {
		e := &edits[i]
		v := editView{
			EditedID: e.ID.String(), By: e.Actor.Name, Reason: e.Actor.Reason, At: e.At.UTC(), ContentType: e.ContentType, Headers: e.Headers,
			Difference: dlq.Diff(before, e.Edit),
		}
		v.Payload, v.PayloadBase64 = textOrBytes(e.Payload)
		out, before = append(out, v), e.Edit
	}
	return out, err
}

type chainView struct {
	EventID    string     `json:"event_id"`
	Sequence   int64      `json:"seq"`
	EventType  string     `json:"event_type"`
	Status     dlq.Status `json:"status"`
	ErrorClass string     `json:"error_class"`
	Released   bool       `json:"released,omitempty"`
}

func newDLQShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "show EVENT_ID",
		Short: "Show a dead letter: event, error, history and blocked events",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: completeDeadLetters,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := eventIDs(args)
			if err == nil {
				err = cli.CheckOutput(output)
			}
			if err != nil {
				return err
			}
			return withDLQ(cmd, func(s *dlq.Store) error {
				l, err := readEither(cmd.Context(), s, ids[0])
				if errors.Is(err, dlq.ErrNotFound) {
					return cli.WithHint(err, "outbox dlq list prints the ids")
				}
				if err != nil {
					return err
				}
				v := shown{deadLetterView: viewOf(&l)}
				holds, err := s.Holds(cmd.Context(), l.Table)
				if err != nil {
					return err
				}
				v.Waiting = l.WaitsFor(holds, time.Now())
				if v.History, err = s.History(cmd.Context(), l.EventID); err != nil {
					return err
				}
				if v.Edits, err = editsOf(cmd.Context(), s, &l); err != nil {
					return err
				}
				chain, err := s.Chain(cmd.Context(), l.Table, l.AggregateID)
				if err != nil {
					return err
				}
				for _, e := range chain {
					v.Chain = append(v.Chain, chainView{e.EventID.String(), e.Sequence, e.EventType, e.Status, e.ErrorClass, e.Released})
				}
				if output != "table" {
					return cli.PrintAs(cmd.OutOrStdout(), output, v)
				}
				return printShown(cmd.OutOrStdout(), &v)
			})
		},
	}
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla)
	return cmd
}

func printShown(w io.Writer, v *shown) error {
	if err := printDeadLetter(w, &v.deadLetterView); err != nil {
		return err
	}
	tw := cli.NewColumns(w)
	for _, e := range v.Edits {
		fmt.Fprintf(w, "\nedited by %s at %s, to be published as event %s in its place: %s\n", cli.Clean(e.By, 40), e.At.Format(time.RFC3339), e.EditedID, cli.Clean(e.Reason, 120))
		printDifference(w, &e.Difference)
	}
	if len(v.Chain) > 0 {
		fmt.Fprintf(w, "\nopen dead letters of the aggregate, in order:\n")
		for _, c := range v.Chain {
			mark := "  "
			if c.EventID == v.EventID {
				mark = "->"
			}
			fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\n", mark, c.Sequence, c.EventID, cli.Clean(c.EventType, 40), c.Status, cli.Clean(c.ErrorClass, 40))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\nhistory:\n")
	for _, c := range v.History {
		way := string(c.To)
		if c.From != "" {
			way = string(c.From) + " -> " + way
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", c.At.UTC().Format(time.RFC3339), c.Action, way, cli.Clean(c.By, 40), cli.Clean(c.Outcome, 80), cli.Clean(c.Why, 120))
	}
	return tw.Flush()
}

// printDeadLetter prints a dead letter, one field per line.
func printDeadLetter(w io.Writer, v *deadLetterView) error {
	tw := cli.NewColumns(w)
	field := cli.FieldsOn(tw)
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.Format(time.RFC3339Nano)
	}
	field("event", v.EventID)
	status := string(v.Status)
	if v.Released {
		status += ", released: later events of the aggregate do not wait for it"
	}
	field("status", status)
	field("priority", v.Priority)
	field("tags", strings.Join(v.Tags, ", "))
	field("outcome", v.Outcome)
	field("note", v.OutcomeNote)
	field("resolved at", at(v.ResolvedAt))
	field("claimed by", v.ClaimedBy)
	field("claimed until", at(v.ClaimedUntil))
	field("published as", v.EditedID)
	field("type", v.EventType)
	field("aggregate", strings.TrimSpace(v.AggregateType+" "+v.AggregateID))
	field("sequence", v.Sequence)
	field("table", v.Table)
	field("topic", v.Topic)
	field("created at", at(v.CreatedAt))
	field("deliver at", at(v.DeliverAt))
	field("error", v.ErrorClass)
	field("code", v.ErrorCode)
	field("message", v.ErrorText)
	for i, e := range v.ErrorChain {
		field(fmt.Sprintf("cause %d", i+1), e)
	}
	field("attempts", fmt.Sprintf("%d, and %d failed replays", v.Attempts, v.Replays))
	field("first failed at", at(&v.FirstFailedAt))
	field("last failed at", at(&v.LastFailedAt))
	strategy := v.Strategy
	if v.Rule != "" {
		strategy += ", by the rule " + v.Rule
	}
	field("strategy", strategy)
	field("next attempt", at(v.NextAttempt))
	field("waits for", v.Waiting)
	for _, m := range []struct {
		name   string
		values map[string]string
	}{{"header", v.Headers}, {"known then", v.Metadata}, {"row", v.Raw}} {
		for _, k := range slices.Sorted(maps.Keys(m.values)) {
			field(m.name+" "+cli.Clean(k, 0), m.values[k])
		}
	}
	field("content type", v.ContentType)
	switch {
	case v.Payload != nil:
		field("payload", *v.Payload)
	case v.PayloadBase64 != nil:
		field("payload", fmt.Sprintf("%d bytes, not text: 0x%x", len(v.PayloadBase64), v.PayloadBase64[:min(len(v.PayloadBase64), 64)]))
	}
	return tw.Flush()
}

// statsView is the result of stats as JSON.
type statsView struct {
	Open        int64                `json:"open"`
	Oldest      *time.Time           `json:"oldest_open,omitempty"`
	ByStatus    map[dlq.Status]int64 `json:"by_status"`
	OpenByClass map[string]int64     `json:"open_by_error_class"`
	OpenByType  map[string]int64     `json:"open_by_event_type"`
}

func newDLQStatsCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count dead letters by status, error class and event type",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			return withDLQ(cmd, func(s *dlq.Store) error {
				st, err := s.Stats(cmd.Context())
				if err != nil {
					return err
				}
				w := cmd.OutOrStdout()
				if output != "table" {
					return cli.PrintAs(w, output, statsView{st.Open, timeOrNil(st.Oldest), st.ByStatus, st.OpenByClass, st.OpenByType})
				}
				fmt.Fprintf(w, "%d open", st.Open)
				if !st.Oldest.IsZero() {
					fmt.Fprintf(w, ", the oldest since %s (%s)", st.Oldest.UTC().Format(cli.ListTime), time.Since(st.Oldest).Round(time.Second))
				}
				fmt.Fprintln(w)
				counts(w, "by status", st.ByStatus)
				counts(w, "open, by error", st.OpenByClass)
				counts(w, "open, by event type", st.OpenByType)
				return nil
			})
		},
	}
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla)
	return cmd
}
