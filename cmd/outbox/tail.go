package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

func newTailCommand() *cobra.Command {
	var (
		output string
		all    bool
		count  int
	)
	cmd := &cobra.Command{
		Use:   "tail TOPIC...",
		Short: "Print events as they arrive",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, topics []string) error {
			if err := cli.OneOf("output", output, "text", "json"); err != nil {
				return err
			}
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return err
			}
			start := kgo.NewOffset().AtEnd()
			if all {
				start = kgo.NewOffset().AtStart()
			}
			client, err := c.Kafka.Client(kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(start))
			if err != nil {
				return err
			}
			defer client.Close()
			if err := app.Reachable(cmd.Context(), client, c.Kafka.Seeds); err != nil {
				return err
			}
			show := printEvent
			if output == "json" {
				show = printEventJSON
			}
			return tail(cmd.Context(), client, count, func(r *kgo.Record) error { return show(cmd.OutOrStdout(), r) })
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json (one object a line)")
	cmd.Flags().BoolVar(&all, "from-start", false, "start with the oldest event instead of the next")
	cmd.Flags().IntVarP(&count, "count", "n", 0, "exit after this number of events; 0 is never")
	app.AddFlags(cmd, app.SectionKafka)
	return cmd
}

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
	e, _, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
	if err != nil {
		_, err = fmt.Fprintf(w, "%s  %s[%d]@%d  not an outbox event (%s)  %s\n",
			r.Timestamp.UTC().Format(time.RFC3339Nano), r.Topic, r.Partition, r.Offset, cli.Clean(err.Error(), 0), cli.Clean(string(r.Value), 0))
		return err
	}
	number := "" // empty for a table without sequence numbers
	if e.Sequence > 0 {
		number = fmt.Sprintf(" seq %d", e.Sequence)
	}
	_, err = fmt.Fprintf(w, "%s  %s[%d]@%d  %s %s%s  event %s  +%s\n  %s\n",
		e.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z"), r.Topic, r.Partition, r.Offset,
		cli.Clean(e.Type, 0), cli.Clean(e.AggregateString(), 0), number, cli.Clean(e.IDString(), 0), r.Timestamp.Sub(e.CreatedAt).Round(time.Millisecond),
		cli.Clean(string(e.Payload), 0))
	return err
}

// printEventJSON prints a record as one JSON object. The payload is JSON if it is valid JSON,
// and text otherwise.
func printEventJSON(w io.Writer, r *kgo.Record) error {
	headers := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	var payload any = string(r.Value)
	if json.Valid(r.Value) {
		payload = json.RawMessage(r.Value)
	}
	return json.NewEncoder(w).Encode(struct {
		Topic     string            `json:"topic"`
		Partition int32             `json:"partition"`
		Offset    int64             `json:"offset"`
		Timestamp time.Time         `json:"timestamp"`
		Key       string            `json:"key"`
		Headers   map[string]string `json:"headers"`
		Payload   any               `json:"payload"`
	}{r.Topic, r.Partition, r.Offset, r.Timestamp.UTC(), string(r.Key), headers, payload})
}
