package bench

import (
	"fmt"
	"strconv"
)

// Shape is the result for backlogs of one kind.
type Shape struct {
	Name string `json:"name"`
	// Payload is the size of each payload in bytes.
	Payload int64   `json:"payload_bytes"`
	Relay   Drained `json:"relay"`
	Peer    Drained `json:"peer"`
}

// Resumed is the result for a relay that was killed before it had saved a checkpoint,
// and started again.
type Resumed struct {
	Counts Counts `json:"counts"`
	// First is the time from the start of the process until it has published an event that
	// was stored before.
	First float64 `json:"first_publish_seconds"`
	// Waited is the part of it until it owned the shard.
	Waited float64 `json:"waited_seconds"`
	// ReadBack is the number of events that it found in the topic, and ReadBackSeconds
	// how long that took. ReadMB is the amount that it read from the brokers, in 10^6 bytes.
	ReadBack        int64   `json:"read_back"`
	ReadBackSeconds float64 `json:"read_back_seconds"`
	ReadMB          float64 `json:"read_mb"`
	PeakMB          float64 `json:"peak_mb"`
}

// ShapeReport is the result of the benchmark of shapes of load.
type ShapeReport struct {
	Head
	Shapes []Shape `json:"shapes,omitempty"`
	// Load is the load on one aggregate: Rate and Payload are its.
	Load    []Contender `json:"load,omitempty"`
	Resumed *Resumed    `json:"resumed,omitempty"`
	// Counts are the relay's events, of all runs.
	Counts Counts `json:"counts"`
}

func (r *ShapeReport) how() string {
	others := 0.0
	for i := range r.Load {
		others = max(others, r.Load[i].Others)
	}
	return r.Head.how(others, "load and consumer")
}

func (r *ShapeReport) tables() (out []table) {
	if len(r.Shapes) > 0 {
		t := table{
			title: "Draining a backlog",
			rows:  [][]string{{"", "events", "events/s", "MB/s", "of the peer's rate", "its CPU for an event", "its memory", "lost", "double", "disorder"}},
		}
		for i := range r.Shapes {
			s := &r.Shapes[i]
			t.rows = append(t.rows, s.row(&s.Relay), s.row(&s.Peer))
		}
		out = append(out, t)
	}
	if len(r.Load) > 0 {
		t := table{
			title: fmt.Sprintf("One aggregate, %g events/s of %d bytes: latency in ms since stored (since to be sent)", r.Rate, r.Payload),
			rows:  [][]string{{"", "events/s", "p50", "p99", "max", "its CPU", "its memory", "lost", "double", "disorder"}},
		}
		for i := range r.Load {
			c := &r.Load[i]
			cell := func(committed, intended float64) string { return fmt.Sprintf("%.1f (%.1f)", committed, intended) }
			t.rows = append(t.rows, append([]string{
				c.Name, fmt.Sprintf("%.0f", c.Arrived.PerSecond), cell(c.Committed.P50, c.Intended.P50),
				cell(c.Committed.P99, c.Intended.P99), cell(c.Committed.Max, c.Intended.Max), cores(c.Process), megabytes(c.Process),
			}, c.Counts.cells()...))
		}
		out = append(out, t)
	}
	return out
}

// row returns the row of the relay or of its peer.
func (s *Shape) row(d *Drained) []string {
	share := ""
	if d == &s.Relay {
		share = fmt.Sprintf("%.0f %%", 100*d.Rate.PerSecond/max(s.Peer.Rate.PerSecond, 1e-9))
	}
	return append([]string{
		d.Name, strconv.FormatInt(d.Counts.Written, 10), fmt.Sprintf("%.0f", d.Rate.PerSecond), fmt.Sprintf("%.1f", d.Rate.PerSecond*float64(s.Payload)/1e6),
		share, fmt.Sprintf("%.1f µs", d.EventCPU), megabytes(d.Process),
	}, d.Counts.cells()...)
}

// cells returns the numbers of events that were lost, doubled and out of order.
func (c Counts) cells() []string {
	return []string{strconv.FormatInt(c.Lost(), 10), strconv.FormatInt(c.Doubles, 10), strconv.FormatInt(c.Disorder, 10)}
}

func (r *ShapeReport) sentences() (out []string) {
	if s := r.Resumed; s != nil {
		out = append(out, fmt.Sprintf("Killed with %d events published since the last checkpoint, and started again: a new event is published %.2f s after the start, %d double. The relay owned the shard after %.2f s, and read %d events back in %.2f s, %.0f MB from the broker, with %.0f MB of memory at most.",
			s.Counts.Written-1, s.First, s.Counts.Doubles, s.Waited, s.ReadBack, s.ReadBackSeconds, s.ReadMB, s.PeakMB))
	}
	return append(out, r.Counts.sentence())
}
