package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// apiFlags are the flags of commands that use the subscriptions API.
type apiFlags struct {
	output, reason string
	// needsReason reports whether the command makes a change. Nil: it makes none that needs
	// a reason.
	needsReason func() bool
}

// client returns a client of the API. Errors are of usage.
func (f *apiFlags) client(cmd *cobra.Command) (*client.Client, error) {
	c, err := app.LoadConfig(cmd)
	if err != nil {
		return nil, err
	}
	return c.API.SubscriptionsClient(f.reason)
}

// changes adds the flags of a change: its reason, which it needs if needed is not nil and returns
// true, and the format of its result.
func (f *apiFlags) changes(cmd *cobra.Command, needed func() bool) {
	f.needsReason = needed
	usage := "reason, recorded in the audit trail"
	if needed != nil {
		usage += "; required for a change"
	}
	cmd.Flags().StringVar(&f.reason, "reason", "", usage)
	cli.OutputFlag(cmd, &f.output)
}

// always is the need of a reason for a command without a preview.
func always() bool { return true }

// print prints the result of a change: the text, or the view in another format.
func (f *apiFlags) print(cmd *cobra.Command, view any, format string, args ...any) error {
	if f.output != "table" {
		return cli.PrintAs(cmd.OutOrStdout(), f.output, view)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}

// changed is the view of a change of a subscription.
type changed struct {
	Subscription string `json:"subscription"`
	Result       string `json:"result"`
	Lease        string `json:"lease,omitempty"`
}

// apiError adds the next step to an error of the API.
func apiError(err error) error {
	p, ok := errors.AsType[*api.Problem](err)
	switch {
	case err == nil, errors.As(err, new(cli.UsageError)):
		return err
	case !ok:
		return cli.WithHint(err, "--api-subscriptions-url or OUTBOX_API_SUBSCRIPTIONS_URL is the URL of 'outbox subscriptions'; operators can use 'outbox admin' by --api-admin-url")
	case p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden:
		return cli.WithHint(err, "OUTBOX_API_TOKEN must contain a token with the right; 'outbox token NAME --role R' creates one")
	case p.Type == httpapi.TypeNoPath || p.Type == httpapi.TypeMethod:
		return cli.WithHint(err, "this operation needs the URL of 'outbox subscriptions' in --api-subscriptions-url or OUTBOX_API_SUBSCRIPTIONS_URL; 'outbox admin' has list, get, status, leases, end-lease, reject, pause, resume, seek and purge")
	case slices.ContainsFunc(p.Errors, func(e api.FieldError) bool { return e.Location == "header."+httpapi.ReasonHeader }):
		return cli.Usage(cli.WithHint(err, "--reason contains the reason"))
	}
	return err
}

func newSubscriptionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "subscriptions",
		Short: "Run subscriptions and serve their HTTP API",
		Long: `Run subscriptions, which are queues over topics, and serve their HTTP API, until SIGTERM.

Several processes share the partitions of each subscription; every one of them answers
for all. Tokens, TLS and proxies are the settings of the section http.

The commands below administer subscriptions. They use the HTTP API at
--api-subscriptions-url. Those of operators (list, get, status, leases, end-lease, pause,
resume, seek, purge) can use that of 'outbox admin' too, at --api-admin-url. Both record changes in the audit trail, with --reason.
'outbox consume NAME' receives and acknowledges messages.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(runSubscriptions),
	}
	app.AddFlags(cmd, app.SubscriptionsSections...)
	cmd.AddCommand(
		newSubscriptionsListCommand(), newSubscriptionsGetCommand(), newSubscriptionsApplyCommand(), newSubscriptionsDeleteCommand(),
		newSubscriptionsPauseCommand(true), newSubscriptionsPauseCommand(false), newSubscriptionsAcknowledgeCommand(), newSubscriptionsSeekCommand(), newSubscriptionsRedeliverCommand(), newSubscriptionsPurgeCommand(), newSubscriptionsStatusCommand(),
		newSubscriptionsLeasesCommand(), newSubscriptionsEndLeaseCommand(), newSubscriptionsRejectCommand(),
	)
	return cmd
}

// subscriptionsCommand returns a command that calls run with a client of the API.
func subscriptionsCommand(use, short string, args cobra.PositionalArgs, run func(cmd *cobra.Command, c *client.Client, args []string) error) (*cobra.Command, *apiFlags) {
	f := new(apiFlags)
	cmd := &cobra.Command{Use: use, Short: short, Args: args, ValidArgsFunction: cobra.NoFileCompletions}
	if strings.Contains(use, " NAME") {
		cmd.ValidArgsFunction = completeSubscriptions
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.needsReason != nil && f.needsReason() {
			if err := reasonRequired(f.reason, cmd.CommandPath()+" --help shows an example"); err != nil {
				return err
			}
		}
		c, err := f.client(cmd)
		if err != nil {
			return err
		}
		return apiError(run(cmd, c, args))
	}
	app.AddFlags(cmd, app.SectionAPI)
	return cmd, f
}

// subscriptionTable prints subscriptions as a list.
var subscriptionTable = cli.Table[client.Subscription]{
	Header: "NAME\tTOPICS\tDELIVERY\tORDERING\tVISIBILITY\tMAX RECEIVE\tSTATE\tCHANGED",
	Row: func(w io.Writer, s client.Subscription) {
		state, delivery := "active", "pull"
		if s.Push != nil {
			delivery = "push to " + cli.Clean(s.Push.To, 40)
		}
		if isPaused(&s) {
			state = "paused"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", s.Name, cli.Clean(strings.Join(s.Topics, ","), 60), delivery, s.Ordering, s.VisibilityTimeout, s.MaxReceive, state, cli.At(w, s.ChangedAt))
	},
	None: "no subscriptions; 'outbox subscriptions apply -f FILE' creates one",
}

func newSubscriptionsListCommand() *cobra.Command {
	var f *apiFlags
	cmd, f := subscriptionsCommand("list", "List subscriptions", cobra.NoArgs, func(cmd *cobra.Command, c *client.Client, _ []string) error {
		all, err := c.List(cmd.Context())
		if err != nil {
			return err
		}
		return subscriptionTable.Print(cmd, f.output, all, "")
	})
	cli.ListFlags(cmd, &f.output)
	return cmd
}

func newSubscriptionsGetCommand() *cobra.Command {
	var f *apiFlags
	cmd, f := subscriptionsCommand("get NAME", "Print a subscription as YAML, which apply accepts", cobra.ExactArgs(1), func(cmd *cobra.Command, c *client.Client, args []string) error {
		s, err := c.Get(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if f.output == "table" {
			return subscriptionTable.Print(cmd, f.output, []client.Subscription{s}, "")
		}
		return cli.PrintAs(cmd.OutOrStdout(), f.output, s)
	})
	cli.OutputFlag(cmd, &f.output)
	cmd.Flags().Lookup("output").DefValue, f.output = "yaml", "yaml"
	return cmd
}

func newSubscriptionsApplyCommand() *cobra.Command {
	var file string
	var f *apiFlags
	cmd, f := subscriptionsCommand("apply -f FILE", "Create or replace subscriptions from a file", cobra.NoArgs, func(cmd *cobra.Command, c *client.Client, _ []string) error {
		all, err := readSubscriptions(cmd.InOrStdin(), file)
		if err != nil {
			return cli.Usage(err)
		}
		stored := make([]client.Subscription, 0, len(all))
		for i := range all {
			s, err := c.Put(cmd.Context(), all[i])
			if err != nil {
				return fmt.Errorf("subscription %s: %w", all[i].Name, err)
			}
			stored = append(stored, s)
			if f.output == "table" {
				fmt.Fprintf(cmd.OutOrStdout(), "subscription %s stored, version %d\n", s.Name, s.Version)
			}
		}
		if f.output == "table" {
			return nil
		}
		return cli.PrintAs(cmd.OutOrStdout(), f.output, stored)
	})
	// Without a required reason: pipelines apply files that have a history of their own.
	f.changes(cmd, nil)
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with subscriptions, YAML or JSON, separated by ---; - is the standard input")
	cmd.Long = `Create or replace subscriptions from a file of YAML or JSON documents:

  name: mail
  topics: [OrderCreated]
  filter: data.total > 100
  transform: '{"payload": {"id": event_id, "total": data.total}}'
  visibility_timeout: 1m
  push: {to: crm}                   # a target; without push the messages are received

With the version of 'outbox subscriptions get' a change is refused if another one came
first.`
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func isPaused(s *client.Subscription) bool { return s.Paused != nil && *s.Paused }

// readSubscriptions reads the documents of a file.
func readSubscriptions(in io.Reader, file string) (all []client.Subscription, err error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // it was only read
		in = f
	}
	for docs := yaml.NewDecoder(in); ; {
		var doc map[string]any
		if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("file %s: %w", file, err)
		}
		b, err := json.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", file, err)
		}
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		var s client.Subscription
		if err := dec.Decode(&s); err != nil {
			return nil, fmt.Errorf("file %s, document %d: %w", file, len(all)+1, err)
		}
		if s.Name == "" {
			return nil, fmt.Errorf("file %s, document %d: name is missing", file, len(all)+1)
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("file %s contains no subscription", file)
	}
	return all, nil
}

func newSubscriptionsDeleteCommand() *cobra.Command {
	var confirm dlqConfirm
	var f *apiFlags
	cmd, f := subscriptionsCommand("delete NAME", "Delete a subscription, its positions and stored messages", cobra.ExactArgs(1), func(cmd *cobra.Command, c *client.Client, args []string) error {
		s, err := c.Get(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if confirm.dryRun {
			return f.print(cmd, changed{Subscription: s.Name, Result: "would be deleted"}, "subscription %s would be deleted", s.Name)
		}
		if err := confirm.confirm(cmd, fmt.Sprintf("delete subscription %s, which cannot be undone?", s.Name)); err != nil {
			return err
		}
		if err := c.Delete(cmd.Context(), s.Name, 0); err != nil {
			return err
		}
		return f.print(cmd, changed{Subscription: s.Name, Result: "deleted"}, "subscription %s deleted", s.Name)
	})
	cmd.Long = `Delete a subscription, its positions and stored messages. 'outbox subscriptions get NAME'
prints a copy, which apply accepts.

On a terminal the command asks for confirmation; elsewhere it requires --yes.`
	f.changes(cmd, func() bool { return !confirm.dryRun })
	confirm.addFlags(cmd)
	return cmd
}

func newSubscriptionsPauseCommand(pause bool) *cobra.Command {
	use, short, done := "resume NAME", "Resume the deliveries of a subscription", "resumed"
	if pause {
		use, short, done = "pause NAME", "Pause the deliveries of a subscription", "paused"
	}
	var f *apiFlags
	cmd, f := subscriptionsCommand(use, short, cobra.ExactArgs(1), func(cmd *cobra.Command, c *client.Client, args []string) error {
		do := c.Resume
		if pause {
			do = c.Pause
		}
		if err := do(cmd.Context(), args[0]); err != nil {
			return err
		}
		return f.print(cmd, changed{Subscription: args[0], Result: done}, "subscription %s %s", args[0], done)
	})
	f.changes(cmd, always)
	return cmd
}

func newSubscriptionsAcknowledgeCommand() *cobra.Command {
	var f *apiFlags
	cmd, f := subscriptionsCommand("acknowledge-skips NAME", "Take notice of records that were not delivered", cobra.ExactArgs(1), func(cmd *cobra.Command, c *client.Client, args []string) error {
		if err := c.AcknowledgeSkips(cmd.Context(), args[0]); err != nil {
			return err
		}
		return f.print(cmd, changed{Subscription: args[0], Result: "skips acknowledged"}, "skips of subscription %s acknowledged", args[0])
	})
	f.changes(cmd, always)
	return cmd
}

func newSubscriptionsSeekCommand() *cobra.Command {
	var to client.SeekTo
	var partition int32
	var offset int64
	var confirm dlqConfirm
	var f *apiFlags
	cmd, f := subscriptionsCommand("seek NAME --to POSITION", "Move the position of a subscription", cobra.ExactArgs(1), func(cmd *cobra.Command, c *client.Client, args []string) error {
		if cmd.Flags().Changed("partition") {
			to.Partition = &partition
		}
		if cmd.Flags().Changed("offset") {
			to.Offset = &offset
		}
		st, err := c.Status(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		preview := newSeekPreview(&st, &to)
		if confirm.dryRun {
			return f.print(cmd, preview, "%s", strings.Join(preview.lines(), "\n"))
		}
		if err := confirm.confirm(cmd, strings.Join(append(preview.lines(), "move the position?"), "\n")); err != nil {
			return err
		}
		if err := c.Seek(cmd.Context(), args[0], to); err != nil {
			return err
		}
		return f.print(cmd, changed{Subscription: args[0], Result: "continues at " + to.To}, "subscription %s continues at %s", args[0], to.To)
	})
	cmd.Long = `Move the position of a subscription: messages before the new position that are not settled
are skipped, and settled ones behind it are delivered again. The command prints how many of
each partition, which is known for latest and offset. On a terminal it asks for
confirmation; elsewhere it requires --yes. --dry-run only prints them.`
	f.changes(cmd, func() bool { return !confirm.dryRun })
	confirm.addFlags(cmd)
	fl := cmd.Flags()
	fl.StringVar(&to.To, "to", "", "latest, earliest, a time in RFC 3339, or offset")
	fl.StringVar(&to.Topic, "topic", "", "only this topic")
	fl.Int32Var(&partition, "partition", 0, "only this partition of the topic")
	fl.Int64Var(&offset, "offset", 0, "next offset, with --to offset, --topic and --partition")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// seekPreview is the effect of a seek.
type seekPreview struct {
	Subscription string          `json:"subscription"`
	DryRun       bool            `json:"dry_run"`
	To           string          `json:"to"`
	Partitions   []seekPartition `json:"partitions"`
}

// seekPartition is the effect on a partition. Skipped and Repeated are absent if only the broker
// knows the new position.
type seekPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"`
	End       int64  `json:"end"`
	Skipped   *int64 `json:"skipped,omitempty"`
	Repeated  *int64 `json:"repeated,omitempty"`
}

func newSeekPreview(st *client.Status, to *client.SeekTo) *seekPreview {
	p := &seekPreview{Subscription: st.Subscription.Name, DryRun: true, To: to.To, Partitions: []seekPartition{}}
	for _, x := range st.Partitions {
		if to.Topic != "" && to.Topic != x.Topic || to.Partition != nil && *to.Partition != x.Partition {
			continue
		}
		one := seekPartition{Topic: x.Topic, Partition: x.Partition, Committed: x.Committed, End: x.End}
		next, known := x.End, to.To == "latest"
		if to.To == "offset" && to.Offset != nil {
			next, known = *to.Offset, true
		}
		if known {
			skipped, repeated := max(0, next-x.Committed), max(0, x.Committed-next)
			one.Skipped, one.Repeated = &skipped, &repeated
		}
		p.Partitions = append(p.Partitions, one)
	}
	return p
}

// lines is the preview as text.
func (p *seekPreview) lines() []string {
	lines := make([]string, len(p.Partitions))
	for i, x := range p.Partitions {
		lines[i] = fmt.Sprintf("%s[%d] is at %d of %d and continues at %s", cli.Clean(x.Topic, 0), x.Partition, x.Committed, x.End, p.To)
		if x.Skipped != nil {
			lines[i] += fmt.Sprintf(": %d offsets skipped, %d repeated", *x.Skipped, *x.Repeated)
		}
	}
	if len(lines) == 0 {
		lines = []string{"the subscription has no such partition"}
	}
	return lines
}

func newSubscriptionsPurgeCommand() *cobra.Command {
	var period cli.Listing
	var confirm dlqConfirm
	var f *apiFlags
	cmd, f := subscriptionsCommand("purge NAME", "Remove waiting messages of a subscription", cobra.ExactArgs(1), func(cmd *cobra.Command, c *client.Client, args []string) error {
		_, until, err := period.Span(time.Now())
		if err != nil {
			return err
		}
		view := func(dryRun bool, n int64) map[string]any {
			return map[string]any{"subscription": args[0], "dry_run": dryRun, "count": n}
		}
		n, err := c.Purge(cmd.Context(), args[0], until.UTC(), true)
		if err != nil {
			return err
		}
		if confirm.dryRun {
			return f.print(cmd, view(true, n), "%s would be removed", cli.Plural(int(n), "message"))
		}
		if err := confirm.confirm(cmd, fmt.Sprintf("remove %s, which cannot be undone?", cli.Plural(int(n), "message"))); err != nil {
			return err
		}
		if n, err = c.Purge(cmd.Context(), args[0], until.UTC(), false); err != nil {
			return err
		}
		return f.print(cmd, view(false, n), "%s removed", cli.Plural(int(n), "message"))
	})
	cmd.Long = `Remove waiting messages of a subscription. The command counts them first. On a terminal
it asks for confirmation; elsewhere it requires --yes. --dry-run only counts.`
	f.changes(cmd, func() bool { return !confirm.dryRun })
	cmd.Flags().StringVar(&period.Until, "until", "", "only messages written before: a date, which includes its day, a time (RFC 3339) or an age such as 24h; UTC")
	confirm.addFlags(cmd)
	return cmd
}

// leaseTable prints leases as a list.
var leaseTable = cli.Table[client.Lease]{
	Header: "LEASE\tEVENT\tKEY\tCONSUMER\tDELIVERY\tRECEIVED\tEXPIRES",
	Row: func(w io.Writer, l client.Lease) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\n", cli.Clean(l.ID, 0), cli.Clean(l.EventID, 40), cli.Clean(l.Key, 40), cli.Clean(l.Consumer, 40), l.Attempt, l.MaxReceive, cli.At(w, l.ReceivedAt), cli.At(w, l.ExpiresAt))
	},
	None: "no message is in flight", First: "oldest",
}

// leasesPage is the maximum of one request.
const leasesPage = 1000

func newSubscriptionsLeasesCommand() *cobra.Command {
	var f *apiFlags
	var limit int
	var cursor string
	cmd, f := subscriptionsCommand("leases NAME", "List messages in flight and their consumers", cobra.ExactArgs(1), func(cmd *cobra.Command, c *client.Client, args []string) error {
		if limit < 0 {
			return cli.Usage(fmt.Errorf("--limit %d must not be negative", limit))
		}
		var all []client.Lease
		var unknown []string
		for {
			p, err := c.Leases(cmd.Context(), args[0], cursor, min(cmp.Or(limit, math.MaxInt)-len(all), leasesPage))
			if err != nil {
				return err
			}
			all, unknown, cursor = append(all, p.Leases...), append(unknown, p.Unknown...), p.Next
			if cursor != "" && len(all) != limit {
				continue
			}
			slices.Sort(unknown)
			for _, instance := range slices.Compact(unknown) {
				fmt.Fprintf(cmd.ErrOrStderr(), "instance %s has not answered: its leases are missing\n", cli.Clean(instance, 0))
			}
			return leaseTable.Print(cmd, f.output, all, cursor)
		}
	})
	cli.ListFlags(cmd, &f.output)
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of leases, the one received first at the beginning; 0 is all")
	cli.CursorFlag(cmd, &cursor)
	return cmd
}

func newSubscriptionsRejectCommand() *cobra.Command {
	return newLeaseCommand("reject NAME LEASE", "Make a message in flight a dead letter", "rejected", "ended: its message is a dead letter", `Make the message of a lease, as 'outbox subscriptions leases' prints it, a dead letter
without more deliveries. Its consumer, which may still work on it, cannot acknowledge it
any more.`, (*client.Client).RejectLease)
}

func newSubscriptionsEndLeaseCommand() *cobra.Command {
	return newLeaseCommand("end-lease NAME LEASE", "End a lease: deliver its message again", "ended", "ended", `End the lease of a message, as 'outbox subscriptions leases' prints it. The message can be
delivered again immediately, and the delivery does not count. Its consumer, which may
still work on it, cannot acknowledge it any more.`, (*client.Client).EndLease)
}

// newLeaseCommand returns a command that changes a lease: do makes the change, which result and
// done state.
func newLeaseCommand(use, short, result, done, long string, do func(c *client.Client, ctx context.Context, name, lease string) error) *cobra.Command {
	var confirm dlqConfirm
	var f *apiFlags
	cmd, f := subscriptionsCommand(use, short, cobra.ExactArgs(2), func(cmd *cobra.Command, c *client.Client, args []string) error {
		if confirm.dryRun {
			l, err := findLease(cmd.Context(), c, args[0], args[1])
			if err != nil {
				return err
			}
			return f.print(cmd, changed{Subscription: args[0], Result: "would be " + result, Lease: l.ID}, "lease %s of subscription %s would be %s: event %s, consumer %s, expires %s",
				cli.Clean(l.ID, 0), args[0], result, cli.Clean(l.EventID, 40), cli.Clean(l.Consumer, 40), l.ExpiresAt.UTC().Format(cli.ListTime))
		}
		if err := confirm.confirm(cmd, fmt.Sprintf("%s: lease %s of subscription %s?", short, cli.Clean(args[1], 0), args[0])); err != nil {
			return err
		}
		if err := do(c, cmd.Context(), args[0], args[1]); err != nil {
			return err
		}
		return f.print(cmd, changed{Subscription: args[0], Result: result, Lease: args[1]}, "lease %s of subscription %s %s", args[1], args[0], done)
	})
	cmd.Long = long + `

On a terminal the command asks for confirmation; elsewhere it requires --yes.`
	f.changes(cmd, func() bool { return !confirm.dryRun })
	confirm.addFlags(cmd)
	return cmd
}

// findLease returns a lease of a subscription.
func findLease(ctx context.Context, c *client.Client, name, id string) (client.Lease, error) {
	for cursor := ""; ; {
		p, err := c.Leases(ctx, name, cursor, leasesPage)
		if err != nil {
			return client.Lease{}, err
		}
		if i := slices.IndexFunc(p.Leases, func(l client.Lease) bool { return l.ID == id }); i >= 0 {
			return p.Leases[i], nil
		}
		if cursor = p.Next; cursor == "" {
			return client.Lease{}, fmt.Errorf("lease %q: it has ended, or 'outbox subscriptions leases %s' prints another id", id, name)
		}
	}
}

func newSubscriptionsStatusCommand() *cobra.Command {
	var f *apiFlags
	cmd, f := subscriptionsCommand("status NAME", "Print lag, leases and positions of a subscription", cobra.ExactArgs(1), func(cmd *cobra.Command, c *client.Client, args []string) error {
		st, err := c.Status(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if f.output != "table" {
			return cli.PrintAs(cmd.OutOrStdout(), f.output, st)
		}
		return printSubscription(cmd.OutOrStdout(), &st)
	})
	cli.OutputFlag(cmd, &f.output)
	return cmd
}

func printSubscription(out io.Writer, st *client.Status) error {
	columns := cli.NewColumns(out)
	field := cli.FieldsOn(columns)
	oldest := ""
	if st.Oldest != nil {
		oldest = st.Oldest.UTC().Format(cli.ListTime)
	}
	field("subscription", st.Subscription.Name)
	field("paused", isPaused(&st.Subscription))
	field("lag", st.Lag)
	field("oldest", oldest)
	field("waiting", st.Waiting)
	field("in flight", st.Leased)
	field("deferred", st.Deferred)
	field("dead letters", st.DeadLetters)
	if len(st.Skips) > 0 {
		fmt.Fprintln(columns, "\nNOT DELIVERED\tOFFSETS\tCOUNT\tREASON\tAT\tACKNOWLEDGED BY")
	}
	for _, k := range st.Skips {
		fmt.Fprintf(columns, "%s[%d]\t%d-%d\t%d\t%s\t%s\t%s\n", k.Topic, k.Partition, k.From, k.To, k.Count, k.Reason, k.At.UTC().Format(cli.ListTime), cli.Clean(k.AcknowledgedBy, 40))
	}
	fmt.Fprintln(columns, "\nPARTITION\tOWNER\tCOMMITTED\tAT\tEND\tWAITING\tIN FLIGHT\tDEFERRED")
	for _, p := range st.Partitions {
		fmt.Fprintf(columns, "%s[%d]\t%s\t%d\t%s\t%d\t%d\t%d\t%d\n", p.Topic, p.Partition, cli.Clean(p.Owner, 40), p.Committed, cli.At(columns, p.CommittedAt), p.End, p.Waiting, p.Leased, p.Deferred)
	}
	if len(st.Consumers) > 0 {
		fmt.Fprintln(columns, "\nWAITING CONSUMER\tREQUESTS\tINSTANCE")
	}
	for _, c := range st.Consumers {
		fmt.Fprintf(columns, "%s\t%d\t%s\n", cli.Clean(c.Consumer, 60), c.Requests, cli.Clean(c.Instance, 40))
	}
	fmt.Fprintln(columns, "\nINSTANCE\tADDRESS\tPARTITIONS\tREPORTED\tBREAKER\tERROR")
	for _, i := range st.Instances {
		fmt.Fprintf(columns, "%s\t%s\t%d\t%s\t%s\t%s\n", cli.Clean(i.Instance, 40), cli.Clean(i.Address, 60), i.Partitions, i.At.UTC().Format(cli.ListTime), formatBreaker(i.Breaker), cli.Clean(i.LastError, 80))
	}
	return columns.Flush()
}

// formatBreaker returns the state of the breaker of a destination; - with pull delivery.
func formatBreaker(b *client.BreakerStatus) string {
	switch {
	case b == nil:
		return "-"
	case b.Cause == "":
		return cli.Clean(b.State, 20)
	}
	return fmt.Sprintf("%s since %s, next probe %s: %s", cli.Clean(b.State, 20), b.Since.UTC().Format(cli.ListTime), b.NextProbe.UTC().Format(cli.ListTime), cli.Clean(b.Cause, 80))
}
