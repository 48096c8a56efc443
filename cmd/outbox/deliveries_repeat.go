package main

import (
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

// repeatFlags are those of repeat.
type repeatFlags struct {
	deliveriesFilter
	dlqConfirm
	dlqActor
	output string
}

// repeated is what repeat prints as JSON. The deliveries are those meant.
type repeated struct {
	delivery.Tally
	DryRun bool `json:"dry_run,omitempty"`
	Asked  int  `json:"asked"`
	// Refused are pending already, or went while they were looked at; Missing have no
	// delivery.
	Refused int      `json:"refused"`
	Missing []string `json:"missing,omitempty"`
}

func newDeliveriesRepeatCommand() *cobra.Command {
	var f repeatFlags
	cmd := &cobra.Command{
		Use:   "repeat [DELIVERY...]",
		Short: "Have deliveries made again",
		Long: `Have deliveries made again, by the process that runs their rule, within a second.
The rule is not asked again whether the event is for it.

Name deliveries, or say which by flags; without --state only failed ones are meant.
What would be done is shown first. On a terminal it asks; elsewhere it needs --yes.

Exit status: 0 all was asked for; 1 it failed, or some deliveries are pending or
were not found; 2 the command line or the configuration is wrong.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := deliveryIDs(args)
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
				return cli.Usage(errors.New("deliveries and flags do not go together: use one or the other"))
			case len(ids) == 0 && f.empty():
				return cli.Usage(errors.New("which deliveries? name them, or use a flag such as --rule or --state failed"))
			}
			if f.state == "" {
				filter.State = delivery.Failed
			}
			if filter.Until.IsZero() {
				filter.Until = time.Now().Add(time.Second) // what fails after the preview is not meant
			}
			return withDeliveries(cmd, func(s *delivery.Store) error { return f.repeat(cmd, s, ids, filter) })
		},
	}
	f.deliveriesFilter.addFlags(cmd, 0)
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "history")
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
		by := f.by()
		asked, err := s.RepeatAll(ctx, meant, by.Name, by.Reason)
		out.Asked, out.Refused = asked.Asked, asked.Pending+asked.Missing
		if err != nil {
			return fmt.Errorf("%w; %d of %d were asked for", err, out.Asked, len(some))
		}
	}
	switch {
	case f.output != "table":
		err = cli.PrintAs(cmd.OutOrStdout(), f.output, &out)
	case !f.dryRun:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "repeat: %d asked for, %d refused since they are pending, %d not found\n", out.Asked, out.Refused, len(out.Missing))
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
		fmt.Fprintf(w, "there is no delivery %s\n", id)
	}
}

// counted is so many deliveries, in words.
func counted(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", n)
}
