package tail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/topiclist"
	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// flags contains the flags of tail.
type flags struct {
	output, since string
	all           bool
	count         int
}

// NewCommand returns the command tail.
func NewCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "tail TOPIC...",
		Short: "Print events as they arrive",
		Long: `Print events as they arrive. The command prints a line to the standard error when it
listens: events written later are printed. A topic that does not exist yet is read from
its first event. With -o json it prints one object a line,
with -o yaml one document for each event.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeTopics,
		RunE: func(cmd *cobra.Command, topics []string) error {
			var since time.Time
			if f.since != "" {
				var err error
				if since, _, err = cli.DateOrTime(f.since, time.Now()); err != nil {
					return cli.Usage(fmt.Errorf("--since %w", err))
				}
			}
			if f.all && f.since != "" {
				return cli.Usage(errors.New("--since and --from-start cannot be combined: use one of them"))
			}
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return err
			}
			schemas, err := c.Kafka.SchemaRegistry()
			if err != nil {
				return err
			}
			client, err := c.Kafka.Client(kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			if err != nil {
				return err
			}
			defer client.Close()
			if err := app.Reachable(cmd.Context(), client, c.Kafka.Seeds); err != nil {
				return err
			}
			if err := f.listen(cmd, client, topics, since); err != nil {
				return err
			}
			show := map[string]func(io.Writer, *kgo.Record) error{"table": printEvent, "json": printEventJSON, "yaml": printEventYAML}[f.output]
			return tail(cmd.Context(), client, f.count, func(r *kgo.Record) error {
				if data, _ := schemas.JSON(cmd.Context(), r.Value); data != nil { // others are printed as they are
					r.Value = data
				}
				return show(cmd.OutOrStdout(), r)
			})
		},
	}
	cli.OutputFlag(cmd, &f.output)
	cmd.Flags().BoolVar(&f.all, "from-start", false, "start with the oldest event instead of the next")
	cmd.Flags().StringVar(&f.since, "since", "", "start with the events written since a date, a time (RFC 3339) or an age such as 10m; UTC")
	cmd.Flags().IntVar(&f.count, "limit", 0, "exit after this number of events; 0 is never")
	app.AddFlags(cmd, app.SectionKafka)
	return cmd
}

// listen makes the client read the topics from the start of the flags, and reports it. The
// positions are known then, so that no later event is left out. Topics that do not exist are
// named, and read from their start as soon as they do: a relay makes a topic for its first event.
func (f *flags) listen(cmd *cobra.Command, client *kgo.Client, topics []string, since time.Time) error {
	ctx := cmd.Context()
	spans, err := topicreader.List(ctx, client, since, topics...)
	switch {
	case errors.Is(err, kerr.InvalidTopicException):
		return cli.Usage(err)
	case err != nil:
		return err
	}
	var missing []string
	at := make(map[string]map[int32]kgo.Offset)
	for _, topic := range topics {
		if spans[topic] == nil {
			missing = append(missing, topic)
			continue
		}
		at[topic] = make(map[int32]kgo.Offset)
		for p, span := range spans[topic] {
			if !f.all && since.IsZero() {
				span.From = span.End
			}
			at[topic][p] = kgo.NewOffset().At(span.From)
		}
	}
	if len(missing) > 0 {
		admin := kadm.NewClient(client)
		fmt.Fprintf(cmd.ErrOrStderr(), "waiting for %s: no such topic yet%s\n", strings.Join(missing, ", "), otherTopics(ctx, admin))
		go await(ctx, cmd.ErrOrStderr(), client, admin, missing)
	}
	if len(at) == 0 {
		return nil
	}
	client.AddConsumePartitions(at)
	from := "the next event"
	switch {
	case f.all:
		from = "the oldest event"
	case !since.IsZero():
		from = "the events since " + since.UTC().Format(cli.ListTime)
	}
	topics = slices.DeleteFunc(slices.Clone(topics), func(topic string) bool { return at[topic] == nil })
	fmt.Fprintf(cmd.ErrOrStderr(), "listening to %s from %s\n", strings.Join(topics, ", "), from)
	return nil
}

// await makes the client read topics from their start once they exist.
func await(ctx context.Context, report io.Writer, client *kgo.Client, admin *kadm.Client, missing []string) {
	for len(missing) > 0 && retry.Wait(ctx, time.Second) == nil {
		known, _ := admin.ListTopics(ctx, missing...) // an outage is reported by the reader of the others
		missing = slices.DeleteFunc(missing, func(topic string) bool {
			if known[topic].Err != nil || len(known[topic].Partitions) == 0 {
				return false
			}
			at := make(map[int32]kgo.Offset)
			for n := range known[topic].Partitions {
				at[n] = kgo.NewOffset().AtStart()
			}
			client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: at})
			fmt.Fprintf(report, "listening to %s from the oldest event\n", topic)
			return true
		})
	}
}

// otherTopics names the topics that exist, for somebody who has mistyped one.
func otherTopics(ctx context.Context, admin *kadm.Client) string {
	all, err := topiclist.All(ctx, admin)
	names := all.Names()
	if err != nil || len(names) == 0 {
		return ""
	}
	more := ""
	if n := len(names) - topicsShown; n > 0 {
		names, more = names[:topicsShown], fmt.Sprintf(" and %d more", n)
	}
	return "; there are " + strings.Join(names, ", ") + more
}

// topicsShown bounds the topics that are named.
const topicsShown = 20

// tail calls show with each record until ctx ends or count records were shown.
func tail(ctx context.Context, client *kgo.Client, count int, show func(*kgo.Record) error) error {
	for shown := 0; ; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		for _, e := range fetches.Errors() {
			if errors.Is(e.Err, kgo.ErrClientClosed) {
				return nil
			}
			return fmt.Errorf("read topic %s: %w", e.Topic, e.Err)
		}
		for r := range fetches.RecordsAll() {
			if err := show(r); err != nil {
				return err
			}
			if shown++; shown == count {
				return nil
			}
		}
	}
}

// printEvent prints an event as text without control characters.
func printEvent(w io.Writer, r *kgo.Record) error {
	e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
	if err != nil {
		_, err = fmt.Fprintf(w, "%s  %s[%d]@%d  not an outbox event (%s)  %s\n",
			r.Timestamp.UTC().Format(time.RFC3339Nano), r.Topic, r.Partition, r.Offset, cli.Clean(err.Error(), 0), cli.Clean(string(r.Value), 0))
		return err
	}
	number := "" // empty for a table without sequence numbers
	if e.Sequence > 0 {
		number = fmt.Sprintf(" seq %d", e.Sequence)
	}
	payload := string(e.Payload)
	if key, ok := e.Headers[outbox.HeaderDataRef]; ok {
		payload = outbox.HeaderDataRef + ": " + key
	}
	_, err = fmt.Fprintf(w, "%s  %s[%d]@%d  %s %s%s  event %s  +%s\n  %s\n",
		e.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z"), r.Topic, r.Partition, r.Offset,
		cli.Clean(e.Type, 0), cli.Clean(e.AggregateID.String(), 0), number, cli.Clean(e.ID.String(), 0), r.Timestamp.Sub(e.CreatedAt).Round(time.Millisecond),
		cli.Clean(payload, 0))
	return err
}

// printEventJSON prints a record as one JSON object.
func printEventJSON(w io.Writer, r *kgo.Record) error {
	return json.NewEncoder(w).Encode(newTailed(r))
}

// printEventYAML prints a record as one YAML document.
func printEventYAML(w io.Writer, r *kgo.Record) error {
	if _, err := io.WriteString(w, "---\n"); err != nil {
		return err
	}
	return cli.PrintAs(w, "yaml", newTailed(r))
}

// tailed is a record as JSON. Payload is JSON if it is valid JSON, and text otherwise.
type tailed struct {
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Timestamp time.Time         `json:"timestamp,omitzero"` // absent where a producer set a year that JSON cannot represent
	Key       string            `json:"key"`
	Headers   map[string]string `json:"headers"`
	Payload   any               `json:"payload"`
}

func newTailed(r *kgo.Record) tailed {
	headers := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	var payload any = string(r.Value)
	if json.Valid(r.Value) {
		payload = json.RawMessage(r.Value)
	}
	return tailed{r.Topic, r.Partition, r.Offset, kafkarecord.At(r), string(r.Key), headers, payload}
}

// completionTime bounds the wait of a shell for the broker.
const completionTime = 2 * time.Second

// completeTopics completes the names of topics.
func completeTopics(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	c, err := app.LoadConfig(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := c.Kafka.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer client.Close()
	all, _ := topiclist.All(ctx, kadm.NewClient(client)) // a shell ignores errors
	for _, name := range all.Names() {
		if !slices.Contains(args, name) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
