package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// statusEvery is the interval of --watch.
const statusEvery = 2 * time.Second

func newStatusCommand() *cobra.Command {
	var output string
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the state of the system on one page",
		Long: `Print the state of the system: the most urgent problem first, then waiting events, the
relays with the owner of each shard, open dead letters by cause, subscriptions with the
age of the oldest message, and the last verification.

--watch prints it every 2 s until it is interrupted: on a terminal in place, otherwise
one after the other.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withAPI(cmd, "", func(api *operatorAPI) error {
				for {
					b, err := api.Status(cmd.Context())
					if err != nil {
						return err
					}
					if err := showStatus(cmd.OutOrStdout(), output, &b, watch); err != nil || !watch {
						return err
					}
					if retry.Wait(cmd.Context(), statusEvery) != nil {
						return nil // interrupted
					}
				}
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "print it every 2 s")
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionAPI)
	return cmd
}

// showStatus prints a status, with watch in place of the previous one.
func showStatus(out io.Writer, output string, b *admin.StatusBody, watch bool) error {
	if output != "table" {
		return cli.PrintAs(out, output, b)
	}
	var page bytes.Buffer
	if err := writeStatus(&page, b); err != nil {
		return err
	}
	if watch {
		return cli.Redraw(out, page.Bytes())
	}
	_, err := page.WriteTo(out)
	return err
}

func writeStatus(w io.Writer, b *admin.StatusBody) error {
	fmt.Fprintf(w, "%s  %s\n", b.At.Format(cli.ListTime), cli.Clean(b.Title, 0))
	for _, d := range b.Details {
		fmt.Fprintln(w, cli.Clean(d, 0))
	}
	for _, u := range b.Unknown {
		fmt.Fprintln(w, "not read: "+cli.Clean(u, 0))
	}
	fmt.Fprintln(w)
	columns := cli.NewColumns(w)
	least := ""
	if b.Waiting.AtLeast {
		least = "at least "
	}
	fmt.Fprintf(columns, "waiting\t%s%d events\n", least, b.Waiting.Events)
	if b.Waiting.Spilled > 0 {
		fmt.Fprintf(columns, "\tand %d dead letters of the open breaker\n", b.Waiting.Spilled)
	}
	fmt.Fprintf(columns, "published\t%.1f events/s\n", b.Published)
	for i := range b.Verification {
		fmt.Fprintf(columns, "verified\t%s\n", verification(&b.Verification[i]))
	}
	writeRelays(columns, b)
	if n := b.DeadLetters.Open; n > 0 {
		fmt.Fprintf(columns, "\nOPEN DEAD LETTERS\t%d\n", n)
		if oldest := b.DeadLetters.Oldest; oldest != nil {
			fmt.Fprintf(columns, "oldest\t%s\n", oldest.Format(cli.ListTime))
		}
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	causes(w, "by cause", b.DeadLetters.Causes)
	columns = cli.NewColumns(w)
	if len(b.Subscriptions) > 0 {
		fmt.Fprintln(columns, "\nSUBSCRIPTION\tSTATE\tLAG\tOLDEST\tLEASED\tDEFERRED\tDEAD LETTERS\tPARTITIONS\tINSTANCES")
	}
	for i := range b.Subscriptions {
		s := &b.Subscriptions[i]
		state := "active"
		switch {
		case s.Paused:
			state = "paused"
		case s.Suspended != "":
			state = "suspended"
		}
		if s.Error != "" {
			fmt.Fprintf(columns, "%s\t%s\tunknown: %s\n", s.Name, state, cli.Clean(s.Error, 120))
			continue
		}
		oldest := "-"
		if s.Oldest != nil {
			oldest = b.At.Sub(*s.Oldest).Round(time.Second).String()
		}
		partitions := fmt.Sprint(s.Partitions)
		if s.Unowned > 0 {
			partitions += fmt.Sprintf(" (%d without owner)", s.Unowned)
		}
		fmt.Fprintf(columns, "%s\t%s\t%d\t%s\t%d\t%d\t%d\t%s\t%d\n", s.Name, state, s.Lag, oldest, s.Leased, s.Deferred, s.DeadLetters, partitions, s.Instances)
	}
	return columns.Flush()
}

func writeRelays(columns io.Writer, b *admin.StatusBody) {
	for i := range b.Relays {
		r := &b.Relays[i]
		if i == 0 || r.Name != b.Relays[i-1].Name { // one of several tables
			fmt.Fprintf(columns, "\nRELAY %s\tOWNER\tSTATE\tEVENTS/S\tSWEEP LAG (WITH WINDOW)\tIN FLIGHT\tBREAKER\tSTALLED TOPICS\n", r.Name)
		}
		for j := range r.Shards {
			s := &r.Shards[j]
			shard, owner, breaker, lag := r.Table, s.Instance, s.Breaker.State, fmt.Sprintf("%.1fs", s.Behind)
			if s.Shard != nil && s.Shard.Count > 1 {
				shard = fmt.Sprintf("%s, shard %d of %d", r.Table, s.Shard.Index, s.Shard.Count)
			}
			if s.State == "stopped" || s.Silent {
				owner, breaker, lag, s.Rates.Published = "none", "", "-", 0 // the values are of the past
			}
			fmt.Fprintf(columns, "%s\t%s\t%s\t%.1f\t%s\t%d\t%s\t%s\n", shard, cmp.Or(owner, "-"), s.State, s.Rates.Published, lag, s.InFlight,
				cmp.Or(breaker, "-"), cmp.Or(strings.Join(s.StalledTopics, ", "), "-"))
		}
		for j := range r.Instances {
			if m := &r.Instances[j]; len(m.Sharing.Owned) == 0 {
				state := "standby"
				if !m.Sharing.Joined {
					state = "not in the group"
				}
				fmt.Fprintf(columns, "%s\t%s\t%s\n", r.Table, m.Instance, state)
			}
		}
	}
}

// verification returns the verification of a table in one line.
func verification(v *admin.VerificationState) string {
	missing := "no event is missing"
	if v.Missing > 0 {
		missing = fmt.Sprintf("%d events are missing", v.Missing)
	}
	if v.LastPass == nil || v.Verified == nil {
		return fmt.Sprintf("%s: first pass, %d of %d ranges; %s", v.Table, v.Done, v.Ranges, missing)
	}
	return fmt.Sprintf("%s: up to %s, at %s; %s", v.Table, v.Verified.Format(cli.ListTime), v.LastPass.Format(cli.ListTime), missing)
}
