package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// scheduleWorkers write messages for later concurrently.
const scheduleWorkers = 64

// Schedule stores n messages for later; at returns when message i is due, and may wait
// before it returns. wrote is called for each.
func Schedule(ctx context.Context, store *schedule.Store, e *Events, n int64, at func(i int64) time.Time, wrote func()) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range scheduleWorkers {
		g.Go(func() error {
			for {
				i := next.Add(1) - 1
				if i >= n {
					return nil
				}
				due := at(i).UTC().Truncate(time.Millisecond)
				now := time.Now()
				m := schedule.Message{
					ID: e.id(0x80, i), Topic: e.typ, Payload: e.payload(i), ContentType: "application/json", Client: "bench",
					CreatedAt: now.UTC().Truncate(time.Millisecond), DeliverAt: due,
				}
				if err := store.Put(ctx, &m, now); err != nil {
					return err
				}
				wrote()
			}
		})
	}
	return g.Wait()
}

// Delivered is the result for messages that were due.
type Delivered struct {
	Name string `json:"name"`
	// Counts are the messages; none can come out of order, as each is alone.
	Counts Counts `json:"counts"`
	// Late is the time from when a message was due until a consumer had it.
	Late Latency `json:"late_ms"`
	// InGoal and InTime are the shares that came within 100 ms and within a second.
	InGoal float64 `json:"within_100_ms"`
	InTime float64 `json:"within_1_s"`
	// Seconds is the time from when the first was due until the last came.
	Seconds float64 `json:"seconds"`
	// Process is the relay's processor time for a message in microseconds, Queries the
	// number of its queries for one.
	Process float64 `json:"process_cpu_us"`
	Queries float64 `json:"queries"`
	// Hinted is the number of reads of the log that a release caused.
	Hinted float64 `json:"hinted_reads"`
	// Others is how many processors the rest of the machine kept busy.
	Others float64 `json:"others_cores"`
}

// Lateness records how late messages came; due returns when message i was due.
func (d *Delivered) Lateness(a *Arrivals, n int64, due func(i int64) time.Time) {
	h := newHistogram()
	var goal, intime int64
	var last time.Time
	for i := range n {
		at, ok := a.Since(i)
		if !ok {
			continue
		}
		if at.After(last) {
			last = at
		}
		late := at.Sub(due(i).Truncate(time.Millisecond))
		record(h, late)
		if late <= 100*time.Millisecond {
			goal++
		}
		if late <= time.Second {
			intime++
		}
	}
	d.Late, d.InGoal, d.InTime = someLatency(h), float64(goal)/float64(max(n, 1)), float64(intime)/float64(max(n, 1))
	d.Seconds = max(0, last.Sub(due(0)).Seconds())
}

// Live is the result for events that were stored concurrently, not for later.
type Live struct {
	Name   string `json:"name"`
	Counts Counts `json:"counts"`
	// Latency is the time from when an event was stored until a consumer had it.
	Latency Latency `json:"latency_ms"`
	// Others is how many processors the rest of the machine kept busy.
	Others float64 `json:"others_cores"`
}

// Waiting is a relay while messages wait.
type Waiting struct {
	Messages int64 `json:"messages"`
	// ResidentMB is its memory in 10^6 bytes, Cores the processors that it keeps busy,
	// Queries its queries per second.
	ResidentMB float64 `json:"resident_mb"`
	Cores      float64 `json:"cores"`
	Queries    float64 `json:"queries_per_second"`
}

// ScheduleReport is the result of the benchmark of scheduled messages.
type ScheduleReport struct {
	Head
	// Stored is the rate at which messages for later were stored.
	Stored  Rate        `json:"stored"`
	None    Waiting     `json:"none_waiting"`
	Many    Waiting     `json:"many_waiting"`
	Parts   []Delivered `json:"parts"`
	Live    []Live      `json:"live"`
	PeakMB  float64     `json:"peak_mb"`
	Counted Counts      `json:"counts"`
}

func (r *ScheduleReport) how() string {
	others := 0.0
	for i := range r.Parts {
		others = max(others, r.Parts[i].Others)
	}
	return r.Head.how(others, "load and consumer")
}

func (r *ScheduleReport) tables() []table {
	waiting := ""
	if r.Many.Messages > 0 {
		waiting = fmt.Sprintf(", %d of them waiting", r.Many.Messages)
	}
	t := table{
		title: fmt.Sprintf("Messages of %d bytes for later%s: from when one is due until a consumer has it, in ms", r.Payload, waiting),
		rows: [][]string{{
			"", "p50", "p95", "p99", "max", "within 100 ms", "within 1 s", "all published after", "its CPU for one", "its queries for one", "lost", "double",
		}},
	}
	for i := range r.Parts {
		d := &r.Parts[i]
		t.rows = append(t.rows, []string{
			d.Name, millis(d.Late.P50), millis(d.Late.P95), millis(d.Late.P99), millis(d.Late.Max),
			fmt.Sprintf("%.1f %%", 100*d.InGoal), fmt.Sprintf("%.1f %%", 100*d.InTime), fmt.Sprintf("%.1f s", d.Seconds),
			fmt.Sprintf("%.0f µs", d.Process), fmt.Sprintf("%.1f", d.Queries), fmt.Sprint(d.Counts.Lost()), fmt.Sprint(d.Counts.Doubles),
		})
	}
	if len(r.Live) == 0 {
		return []table{t}
	}
	live := table{
		title: "Events that are not for later: from when one is stored until a consumer has it, in ms",
		rows:  [][]string{{"", "p50", "p95", "p99", "max", "lost", "double"}},
	}
	for i := range r.Live {
		l := &r.Live[i]
		live.rows = append(live.rows, []string{
			l.Name, millis(l.Latency.P50), millis(l.Latency.P95), millis(l.Latency.P99), millis(l.Latency.Max), fmt.Sprint(l.Counts.Lost()), fmt.Sprint(l.Counts.Doubles),
		})
	}
	return []table{t, live}
}

func (r *ScheduleReport) sentences() []string {
	w := func(x Waiting) string {
		return fmt.Sprintf("%.0f MB, %.1f %% of a core and %.0f queries/s with %d messages waiting", x.ResidentMB, 100*x.Cores, x.Queries, x.Messages)
	}
	takes, stored := w(r.None), []string(nil)
	if r.Many.Messages > 0 { // else nothing was stored to wait, and both are the same
		takes += ", and " + w(r.Many)
		stored = []string{fmt.Sprintf("Messages for later were stored at %.0f/s.", r.Stored.PerSecond)}
	}
	out := append([]string{fmt.Sprintf("The relay, which schedules, takes %s; %.0f MB at most under load.", takes, r.PeakMB)}, stored...)
	return append(out, fmt.Sprintf("All runs: %d messages due, %d consumed, %d double.", r.Counted.Written, r.Counted.Consumed, r.Counted.Doubles))
}
