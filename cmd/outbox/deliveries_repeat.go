package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// repeatFlags contains the flags of repeat.
type repeatFlags struct {
	deliveriesFilter
	dlqConfirm
	dlqActor
	output string
}

// repeated is the result of repeat as JSON. The tally is of the selected deliveries.
type repeated struct {
	delivery.Tally
	DryRun bool `json:"dry_run,omitempty"`
	Asked  int  `json:"asked"`
	// Refused counts deliveries that were pending already, or deleted after the preview.
	// Missing contains the ids without a delivery.
	Refused int      `json:"refused"`
	Missing []string `json:"missing,omitempty"`
}

func newDeliveriesRepeatCommand() *cobra.Command {
	var f repeatFlags
	cmd := &cobra.Command{
		Use:   "repeat [DELIVERY...]",
		Short: "Repeat deliveries",
		Long: `Repeat deliveries. The process that runs the rule repeats them within a second,
without evaluating the rule's expression again.

Select deliveries by id or by flags; without --state only failed ones. The command
prints a preview first. On a terminal it asks for confirmation; elsewhere it
requires --yes.

Exit status: 0 all were requested; 1 failure, or some deliveries are pending or
were not found; 2 wrong command line or configuration.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := deliveryIDs(args)
			if err == nil {
				err = f.required(f.dryRun)
			}
			if err != nil {
				return err
			}
			filter, err := f.filter(time.Now())
			if err == nil {
				err = cli.CheckOutput(f.output)
			}
			switch {
			case err != nil:
				return err
			case len(ids) > 0 && (!f.empty() || f.Limit != 0):
				return cli.Usage(errors.New("delivery ids and filters cannot be combined: use one of them"))
			case len(ids) == 0 && f.empty():
				return cli.Usage(errors.New("no deliveries selected: name ids, or use a filter such as --rule or --state failed"))
			}
			if f.state == "" {
				filter.State = delivery.Failed
			}
			if filter.Until.IsZero() {
				filter.Until = time.Now().Add(time.Second) // excludes deliveries that fail after the preview
			}
			return withDeliveries(cmd, func(s *delivery.Store, trail *auditTrail) error {
				f.trail = trail
				return f.repeat(cmd, s, ids, filter)
			})
		},
	}
	f.deliveriesFilter.addFlags(cmd, 0)
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "history and the audit trail")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla)
	return cmd
}

func (f *repeatFlags) repeat(cmd *cobra.Command, s *delivery.Store, ids []gocql.UUID, filter delivery.Filter) error {
	ctx := cmd.Context()
	out := repeated{Tally: *delivery.NewTally()}
	var some []*delivery.Delivery
	var err error
	if len(ids) == 0 {
		some, _, err = listDeliveries(cmd, s, filter, f.Limit)
	} else {
		some, err = s.ReadAll(ctx, ids)
	}
	if err != nil {
		return err
	}
	meant := make([]gocql.UUID, len(some))
	for i, d := range some {
		meant[i] = d.ID
		out.Add(d)
	}
	for _, id := range ids {
		if !slices.Contains(meant, id) {
			out.Missing = append(out.Missing, id.String())
		}
	}
	if f.output == "table" || !f.dryRun {
		out.preview(cmd.ErrOrStderr())
	}
	if out.DryRun = f.dryRun; !f.dryRun && len(some) > 0 {
		if err := f.confirm(cmd, fmt.Sprintf("repeat %s?", counted(len(some)))); err != nil {
			return err
		}
		err := f.audited(ctx, "repeat-deliveries", "", struct {
			IDs        []gocql.UUID `json:"ids"`
			Deliveries int          `json:"deliveries"`
		}{meant[:min(len(meant), maxAuditedIDs)], len(meant)}, func(ctx context.Context) (string, error) {
			by := f.by()
			asked, err := s.RepeatAll(ctx, meant, by.Name, by.Reason)
			out.Asked, out.Refused = asked.Asked, asked.Pending+asked.Missing
			return "", err
		})
		if err != nil {
			return fmt.Errorf("%w; %d of %d were requested", err, out.Asked, len(some))
		}
	}
	switch {
	case f.output != "table":
		err = cli.PrintAs(cmd.OutOrStdout(), f.output, &out)
	case !f.dryRun:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "repeat: %d requested, %d refused because they are pending, %d not found\n", out.Asked, out.Refused, len(out.Missing))
	}
	if err == nil && !f.dryRun && (out.Refused > 0 || len(out.Missing) > 0) {
		return cli.QuietError{}
	}
	return err
}

func (r *repeated) preview(w io.Writer) {
	fmt.Fprintf(w, "repeat %s\n", counted(r.Deliveries))
	counts(w, "by rule", r.ByRule)
	counts(w, "by plugin", r.ByPlugin)
	counts(w, "by state", r.ByState)
	counts(w, "by last error", r.ByError)
	for _, id := range r.Missing {
		fmt.Fprintf(w, "delivery %s does not exist\n", id)
	}
}

// counted returns the number of deliveries with its noun.
func counted(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", n)
}
