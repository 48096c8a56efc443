package bench

import (
	"fmt"
	"strconv"
)

// StreamShape is the result for a table with so many CDC streams.
type StreamShape struct {
	// Name describes what makes the streams, Shards is the number of shards of the embedded
	// database; 0 if a given cluster has them.
	Name   string `json:"name"`
	Shards int    `json:"shards,omitempty"`
	// Idle has the number of streams that the table had.
	Idle    Idle      `json:"idle"`
	Hints   Contender `json:"hints"`
	Polling Contender `json:"polling"`
	Tail    Drained   `json:"tail"`
	Sweep   Drained   `json:"sweep"`
	Peer    Drained   `json:"peer"`
}

// StreamReport is the result of the benchmark of numbers of streams.
type StreamReport struct {
	Head
	// Drain is the number of events of a backlog.
	Drain  int64         `json:"drain_events"`
	Shapes []StreamShape `json:"shapes"`
	// Counts are the relay's events, of all runs.
	Counts Counts `json:"counts"`
}

func (r *StreamReport) how() string {
	others := 0.0
	for i := range r.Shapes {
		others = max(others, r.Shapes[i].Hints.Others, r.Shapes[i].Polling.Others)
	}
	return r.Head.how(others, "load and consumer")
}

func (r *StreamReport) tables() []table {
	live := table{
		title: fmt.Sprintf("%g events/s of %d bytes: latency in ms since stored, and what the database and its queries take; idle", r.Rate, r.Payload),
		rows: [][]string{{
			"streams", "hints p50", "p99", "queries/s", "database", "polling p50", "p99", "queries/s", "database", "idle: queries/s", "relay", "database",
		}},
	}
	drain := table{
		title: fmt.Sprintf("Draining %d events, events/s", r.Drain),
		rows:  [][]string{{"streams", "tail reader", "of the peer", "sweep reader", "of the peer", "peer", "its queries", "queries: tail", "sweep"}},
	}
	for i := range r.Shapes {
		s := &r.Shapes[i]
		name := fmt.Sprintf("%d, %s", s.Idle.Streams, s.Name)
		row := []string{name}
		for _, c := range []*Contender{&s.Hints, &s.Polling} {
			row = append(row, millis(c.Committed.P50), millis(c.Committed.P99), fmt.Sprintf("%.0f", c.Queries), cores(c.Database))
		}
		live.rows = append(live.rows, append(row, fmt.Sprintf("%.0f", s.Idle.Queries), idleCores(s.Idle.Relay), idleCores(s.Idle.Database)))
		of := func(d *Drained) string {
			return fmt.Sprintf("%.0f %%", 100*d.Rate.PerSecond/max(s.Peer.Rate.PerSecond, 1e-9))
		}
		rate := func(d *Drained) string { return fmt.Sprintf("%.0f", d.Rate.PerSecond) }
		queries := func(d *Drained) string { return strconv.FormatInt(int64(d.Queries), 10) }
		drain.rows = append(drain.rows, []string{
			name, rate(&s.Tail), of(&s.Tail), rate(&s.Sweep), of(&s.Sweep), rate(&s.Peer), queries(&s.Peer), queries(&s.Tail), queries(&s.Sweep),
		})
	}
	return []table{live, drain}
}

// idleCores is the processor time of an idle process.
func idleCores(c Cost) string {
	if c == (Cost{}) {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*c.Cores)
}

func (r *StreamReport) sentences() []string {
	return []string{
		"Hints: a reading has the streams of the hints alone, so p50 depends on the fixed time of a query and on the processors of this machine, p99 also on the readings that the rows wait for: those of one stream come one after another. Each 100 streams are read for themselves, so with many streams the limit of 1,000 queries/s gathers hints, and p50 depends on it.",
		"Polling: a reading has all streams, 100 in a query, so it depends on streams / shards and on the time of a partition. The next one follows after twice its time, and 3 ms at least.",
		"Idle: queries depend on streams / 100 and on `relay.tail_max_interval`, the database's time on the streams, the relay's on both.",
		"Drain: the tail reader depends on the time of a row, on the shards, which serve it concurrently if the rows are in several streams, and on this machine's processors. The sweep reader and the peer read each stream by itself, so their queries depend on the streams.",
		r.Counts.sentence(),
	}
}

// CostPoint is the result for one value of relay.tail_max_interval.
type CostPoint struct {
	Interval string    `json:"tail_max_interval"`
	Hints    Contender `json:"hints"`
	Polling  Contender `json:"polling"`
}

// CostReport is what latency costs the database.
type CostReport struct {
	Head
	Streams int64 `json:"streams"`
	// Writes is the processor time of the database for an event without a relay, in
	// microseconds; 0 if it is not known.
	Writes float64     `json:"writes_us_per_event,omitempty"`
	Points []CostPoint `json:"points"`
	// Counts are the relay's events, of all runs.
	Counts Counts `json:"counts"`
}

func (r *CostReport) how() string {
	others := 0.0
	for i := range r.Points {
		others = max(others, r.Points[i].Hints.Others, r.Points[i].Polling.Others)
	}
	return r.Head.how(others, "load and consumer")
}

func (r *CostReport) tables() []table {
	t := table{
		title: fmt.Sprintf("%g events/s of %d bytes in %d streams: latency in ms since stored, and what the relay adds to the database", r.Rate, r.Payload, r.Streams),
		rows:  [][]string{{"`relay.tail_max_interval`", "hints p50", "p99", "queries/s", "database for an event", "polling p50", "p99", "queries/s", "database for an event"}},
	}
	for i := range r.Points {
		p := &r.Points[i]
		row := []string{p.Interval}
		for _, c := range []*Contender{&p.Hints, &p.Polling} {
			row = append(row, millis(c.Committed.P50), millis(c.Committed.P99), fmt.Sprintf("%.0f", c.Queries), r.added(c))
		}
		t.rows = append(t.rows, row)
	}
	return []table{t}
}

// added returns the time that the database took for an event besides the write.
func (r *CostReport) added(c *Contender) string {
	if r.Writes == 0 || c.DatabaseEvent == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f µs", c.DatabaseEvent-r.Writes)
}

func (r *CostReport) sentences() []string {
	out := []string{r.Counts.sentence()}
	if r.Writes > 0 {
		out = append([]string{fmt.Sprintf("The write of an event alone takes the database %.0f µs.", r.Writes)}, out...)
	}
	return out
}
