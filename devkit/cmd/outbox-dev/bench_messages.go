package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/messages"
)

// benchTopic is the topic of all measured messages.
const benchTopic = "bench"

// benchMessage returns the body of a request for a message with a payload of that many
// bytes.
func benchMessage(payload int) []byte {
	const around = len(`{"text":""}`)
	return []byte(`{"topic":"` + benchTopic + `","payload":{"text":"` + strings.Repeat("some text ", payload/10+1)[:payload-around] + `"}}`)
}

const whatBatch = "batches"

func newBenchMessagesCommand() *cobra.Command {
	var (
		f    benchFlags
		s    serviceBench
		rate float64
	)
	cmd := &cobra.Command{
		Use:   "messages",
		Short: "Measure the HTTP intake of messages, and the same rows without HTTP",
		Long: `Measure the intake of messages over HTTP and, in the same run, the same rows
without HTTP: written by the client alone, and by a handler that only reads the
request and writes the rows.

  batches   requests of 1,000 messages, first as fast as 4 callers get responses,
            then at the rate of --rate
  calm      messages one by one, at a fixed rate

Load, service and database share the machine. The service is a process of its
own, and so is the embedded database; --scylla-hosts and --kafka-seeds replace
it. Exit status 1 if a request failed otherwise than by refusal.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw := func(r recordings) *bench.Recorded { return r.message }
			one := benchMessage(f.payload)
			many := append(append([]byte(`{"messages":[`), bytes.Join(slicesRepeat(one, messages.MaxBatch), []byte(","))...), `]}`...)
			single := phase{items: 1, raw: raw, body: func(int64) []byte { return one }}
			batch := phase{what: whatBatch, items: messages.MaxBatch, raw: raw, body: func(int64) []byte { return many }}
			offered := fmt.Sprintf("offered %g/s", rate)
			phases := newSlices(batch, "/v1/messages/batch", "/bare/batch", loadFull, nil)
			phases = append(phases, withLoad(batch, bench.Whole, "/v1/messages/batch", offered, always(rate/messages.MaxBatch)))
			phases = append(phases, newSlices(single, "/v1/messages", "/bare/messages", loadCalm, always(s.calm))...)
			return s.measure(cmd, &f, fmt.Sprintf("Messages of %d bytes; times in ms", f.payload), phases,
				func(r *bench.ServiceReport) []string { return messageGoals(r, offered) })
		},
	}
	cmd.Flags().Float64Var(&rate, "rate", 10_000, "messages per second offered in batches")
	serviceFlags(cmd, &f, &s, 4)
	return cmd
}

func slicesRepeat(b []byte, n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = b
	}
	return out
}

// messageGoals reports to which degree the goals of messages are met.
func messageGoals(r *bench.ServiceReport, offered string) []string {
	raw, bare, whole := r.Find(whatBatch, bench.Raw, loadFull), r.Find(whatBatch, bench.Bare, loadFull), r.Find(whatBatch, bench.Whole, loadFull)
	at := r.Find(whatBatch, bench.Whole, offered)
	share := func(of *bench.Phase) string {
		return fmt.Sprintf("%.0f %%", 100*whole.Served.PerSecond/max(of.Served.PerSecond, 1e-9))
	}
	w, b, c := r.Find("", bench.Whole, loadCalm), r.Find("", bench.Bare, loadCalm), r.Find("", bench.Raw, loadCalm)
	return []string{
		fmt.Sprintf("In batches of %d, as fast as it answers, the service stores %.0f messages/s (the goal is 10,000): %s of the raw client, which sends no HTTP, and %s of the bare handler.",
			messages.MaxBatch, whole.Served.PerSecond, share(raw), share(bare)),
		fmt.Sprintf("In batches, %s: it stores %.0f/s, a batch takes %.0f ms at p95.", offered, at.Served.PerSecond, at.Intended.P95),
		fmt.Sprintf("One by one at %.0f/s its p95 is %.2f ms from when a message was to be sent (the goal is 10) and %.2f ms from when it was; the raw client's is %.2f ms, the bare handler's %.2f ms. Beside the database a request takes %.0f µs at p95.",
			w.Offered.Offered, w.Intended.P95, w.Sent.P95, c.Sent.P95, b.Sent.P95, 1000*w.Own.P95),
	}
}
