package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	subverify "github.com/scylla-outbox/scylla-outbox/subscriptions/verify"
)

// verifySubscription accounts for the offsets of a subscription's topics.
func verifySubscription(c *app.Config, cmd *cobra.Command, f *verifyFlags) error {
	for _, name := range []string{"since", "until", "wait-old", "more-topics", "from-first", "repair", "resume"} {
		if cmd.Flags().Changed(name) {
			return cli.Usage(fmt.Errorf("--%s cannot be combined with --subscription", name))
		}
	}
	if err := subscriptions.CheckName(f.subscription); err != nil {
		return cli.Usage(fmt.Errorf("--subscription %w", err))
	}
	ctx := cmd.Context()
	c.Scylla.Need(schema.Subscriptions)
	session, disconnect, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	deadLetters, err := dlq.Open(session, c.Scylla.Keyspace, c.DLQOptions()...)
	if err != nil {
		return err
	}
	s, err := store.Open(session, c.Scylla.Keyspace)
	if err != nil {
		return err
	}
	client, err := c.Kafka.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := subverify.Check(ctx, subverify.Config{Store: s, DeadLetters: deadLetters, Kafka: kadm.NewClient(client)}, f.subscription)
	if errors.Is(err, subscriptions.ErrNotFound) {
		return cli.WithHint(err, "outbox subscriptions list shows the subscriptions of this keyspace")
	}
	if err != nil {
		return err
	}
	print := printAccount
	if f.output != "table" {
		print = printAccountJSON
	}
	if err := print(cmd.OutOrStdout(), r); err != nil {
		return err
	}
	switch {
	case len(r.Problems) > 0:
		return cli.QuietError{}
	case len(r.Partitions) == 0:
		return cli.WaitsError{}
	}
	return nil
}

func printAccountJSON(w io.Writer, r *subverify.Report) error {
	return json.NewEncoder(w).Encode(struct {
		*subverify.Report
		OK bool `json:"ok"`
	}{r, len(r.Problems) == 0 && len(r.Partitions) > 0})
}

func printAccount(w io.Writer, r *subverify.Report) error {
	var out strings.Builder
	for i, p := range r.Problems {
		if i == verifyShown {
			fmt.Fprintf(&out, "and %d more problems; -o json lists them all\n", len(r.Problems)-i)
			break
		}
		fmt.Fprintf(&out, "%-12s %s[%d]@%d", p.Kind, p.Topic, p.Partition, p.Offset)
		if p.Count > 1 {
			fmt.Fprintf(&out, " and %d more", p.Count-1)
		}
		switch p.Kind {
		case subverify.Lost:
			out.WriteString("  deleted by the topic before they were acknowledged")
		case subverify.BeyondEnd:
			out.WriteString("  the position is beyond the end of the topic: outbox subscriptions seek")
		case subverify.BadPosition:
			out.WriteString("  another program has committed this offset: outbox subscriptions seek")
		case subverify.Undelivered:
			fmt.Fprintf(&out, "  dead letter %s is claimed and not delivered: replay it when its claim has expired", p.DeadLetter)
		}
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "subscription %s, %d partitions:\n%d offsets settled, %d waiting, %d messages stored, %d lost, %d open dead letters\n",
		r.Subscription, len(r.Partitions), r.Settled, r.Waiting, r.Stored, r.Lost, r.DeadLetters)
	switch {
	case len(r.Problems) > 0:
		out.WriteString("verdict: problems found\n")
	case len(r.Partitions) == 0:
		out.WriteString("verdict: nothing checked: no topic matches\n")
	default:
		out.WriteString("verdict: ok\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}
