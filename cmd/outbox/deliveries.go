package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

func newDeliveriesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deliveries",
		Short: "List and repeat deliveries of events by the rules of outbox react",
		Long: `List and repeat deliveries of events by the rules of 'outbox react'.

A delivery is one event at one rule: pending while it is retried, delivered, or
failed. Events without an attempt are the lag of the rule's consumer group.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDeliveriesListCommand(), newDeliveriesShowCommand(), newDeliveriesRepeatCommand())
	return cmd
}

// deliveriesFilter contains the flags that select deliveries.
type deliveriesFilter struct {
	cli.Listing
	rule, plugin, state, event string
}

func (f *deliveriesFilter) addFlags(cmd *cobra.Command, limit int) {
	fl := cmd.Flags()
	fl.StringVar(&f.rule, "rule", "", "deliveries of this rule")
	fl.StringVar(&f.plugin, "plugin", "", "deliveries to this target or plugin")
	fl.StringVar(&f.state, "state", "", "pending, failed or delivered")
	fl.StringVar(&f.event, "event", "", "deliveries of the event with this id")
	f.Listing.AddFlags(cmd, "deliveries", "started", limit)
}

// filter returns the filter of the flags.
func (f *deliveriesFilter) filter(now time.Time) (out delivery.Filter, err error) {
	out = delivery.Filter{Rule: f.rule, Plugin: f.plugin, State: delivery.State(f.state), Event: f.event}
	if f.state != "" {
		if err := cli.OneOf("state", f.state, string(delivery.Pending), string(delivery.Failed), string(delivery.Delivered)); err != nil {
			return out, err
		}
	}
	out.Since, out.Until, err = f.Span(now)
	return out, err
}

func (f *deliveriesFilter) empty() bool {
	return f.rule == "" && f.plugin == "" && f.state == "" && f.event == "" && f.Since == "" && f.Until == ""
}

// withDeliveries runs f with the store and the audit trail of the command's configuration.
func withDeliveries(cmd *cobra.Command, f func(*delivery.Store, *auditTrail) error) error {
	c, err := app.LoadConfig(cmd)
	if err != nil {
		return err
	}
	session, err := c.Scylla.Session(c.Scylla.Keyspace)
	if err != nil {
		return err
	}
	defer sessions.Close(session)
	s, err := c.Deliveries(session)
	if err != nil {
		return err
	}
	return f(s, newAuditTrail(cmd, c, session))
}

// listDeliveries reads up to limit deliveries that match f; more reports that there are others.
func listDeliveries(cmd *cobra.Command, s *delivery.Store, f delivery.Filter, limit int) (out []*delivery.Delivery, more bool, err error) {
	err = s.List(cmd.Context(), f, func(d *delivery.Delivery) error {
		if limit > 0 && len(out) == limit {
			more = true
			return delivery.ErrStop
		}
		out = append(out, d)
		return nil
	})
	return out, more, err
}

func newDeliveriesListCommand() *cobra.Command {
	var f deliveriesFilter
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List deliveries, the newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(time.Now())
			if err == nil {
				err = cli.CheckOutput(output)
			}
			if err != nil {
				return err
			}
			return withDeliveries(cmd, func(s *delivery.Store, _ *auditTrail) error {
				found, more, err := listDeliveries(cmd, s, filter, f.Limit)
				if err != nil {
					return err
				}
				return deliveryTable.Print(cmd, output, found, more)
			})
		},
	}
	f.addFlags(cmd, dlqListed)
	cli.ListFlags(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla)
	return cmd
}

// deliveryTable prints deliveries as a list.
var deliveryTable = cli.Table[*delivery.Delivery]{
	Header: "DELIVERY\tRULE\tSTATE\tATTEMPTS\tTYPE\tAGGREGATE\tBEGAN\tERROR",
	Row: func(w io.Writer, d *delivery.Delivery) {
		reason := ""
		if d.State != delivery.Delivered {
			reason = cli.Clean(d.Error, 60)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", d.ID, cli.Clean(d.Rule, 60), d.State, d.Attempts, cli.Clean(d.EventType, 40), cli.Clean(d.AggregateID, 40),
			cli.At(w, d.CreatedAt), reason)
	},
	View: func(d *delivery.Delivery) any { return delivery.ViewOf(d) },
	None: "no delivery matches",
}

// deliveryIDs reads the ids on the command line.
func deliveryIDs(args []string) ([]gocql.UUID, error) {
	return idsOf(args, "delivery's id", "outbox deliveries list")
}

func newDeliveriesShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "show DELIVERY",
		Short: "Show a delivery: the event, its attempts and its last error",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := deliveryIDs(args)
			if err == nil {
				err = cli.CheckOutput(output)
			}
			if err != nil {
				return err
			}
			return withDeliveries(cmd, func(s *delivery.Store, _ *auditTrail) error {
				d, err := s.Read(cmd.Context(), ids[0])
				if errors.Is(err, delivery.ErrNotFound) {
					return cli.WithHint(err, "outbox deliveries list prints the ids")
				}
				if err != nil {
					return err
				}
				v := delivery.ViewOf(d)
				if output != "table" {
					return cli.PrintAs(cmd.OutOrStdout(), output, v)
				}
				return printDelivery(cmd.OutOrStdout(), &v)
			})
		},
	}
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla)
	return cmd
}

func printDelivery(w io.Writer, v *delivery.View) error {
	tw := cli.NewColumns(w)
	field := cli.FieldsOn(tw)
	field("delivery", v.ID)
	field("rule", v.Rule)
	field("plugin", v.Plugin)
	field("state", v.State)
	field("attempts", v.Attempts)
	field("last error", v.Error)
	if v.NextAttempt != nil {
		field("next attempt", v.NextAttempt.Format(time.RFC3339))
	}
	field("began", v.CreatedAt.Format(time.RFC3339Nano))
	field("changed", v.ChangedAt.Format(time.RFC3339Nano))
	if v.Repeats > 0 {
		field("repeated", fmt.Sprintf("%d times, last by %s: %s", v.Repeats, v.RepeatedBy, v.Reason))
	}
	field("event", v.EventID)
	field("type", v.EventType)
	field("aggregate", v.AggregateID)
	field("record", fmt.Sprintf("%s[%d]@%d", v.Topic, v.Partition, v.Offset))
	if v.Event != nil {
		field("happened", v.Event.Time)
		field("payload", string(v.Event.Payload()))
	}
	for i, t := range v.Tries {
		came := "accepted"
		if t.Error != "" {
			came = t.Error
		}
		field(fmt.Sprintf("attempt %d", i+1), fmt.Sprintf("%s, %s: %s", t.At.Format(time.RFC3339Nano), time.Duration(t.TookMS)*time.Millisecond, came))
	}
	return tw.Flush()
}
