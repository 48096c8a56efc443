package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// noisy is the number of processors that others may keep busy before the report
// mentions it.
const noisy = 0.1

// table is rows of cells under a heading; the first row names the columns.
type table struct {
	title string
	rows  [][]string
}

// tables returns the report's figures.
func (r *Report) tables() []table {
	var out []table
	if len(r.Latency) > 0 {
		t := table{
			title: fmt.Sprintf("Latency in ms at %g events/s, %d bytes each: since stored (since to be sent)", r.Rate, r.Payload),
			rows:  [][]string{{"", "p50", "p95", "p99", "p99.9", "max", "its CPU", "database CPU", "queries/s", "its memory", "lost", "disorder"}},
		}
		for _, c := range r.Latency {
			cell := func(f func(Latency) float64) string { return fmt.Sprintf("%.1f (%.1f)", f(c.Committed), f(c.Intended)) }
			t.rows = append(t.rows, []string{
				c.Name,
				cell(func(l Latency) float64 { return l.P50 }), cell(func(l Latency) float64 { return l.P95 }),
				cell(func(l Latency) float64 { return l.P99 }), cell(func(l Latency) float64 { return l.P999 }),
				cell(func(l Latency) float64 { return l.Max }),
				cores(c.Process), cores(c.Database), fmt.Sprintf("%.0f", c.Queries), megabytes(c.Process),
				strconv.FormatInt(c.Counts.Lost(), 10), strconv.FormatInt(c.Counts.Disorder, 10),
			})
		}
		out = append(out, t)
	}
	if len(r.Drain) > 0 {
		c := r.Ceilings
		t := table{
			title: fmt.Sprintf("Draining %d events", r.Drain[0].Counts.Written),
			rows: [][]string{
				{"", "events/s", "of read, then produce", "first after", "its CPU for an event", "its memory", "queries", "lost", "disorder"},
				{"reading the rows and discarding them", fmt.Sprintf("%.0f", c.Read.PerSecond), "", "", "", "", "", "", ""},
				{"producing the records", fmt.Sprintf("%.0f", c.Produce.PerSecond), "", "", "", "", "", "", ""},
				{"one after the other, 1 / (1/read + 1/produce)", fmt.Sprintf("%.0f", c.OneAfterTheOther()), "100 %", "", "", "", "", "", ""},
			},
		}
		for _, d := range r.Drain {
			t.rows = append(t.rows, []string{
				d.Name, fmt.Sprintf("%.0f", d.Rate.PerSecond), fmt.Sprintf("%.0f %%", 100*d.Share), fmt.Sprintf("%.2f s", d.Start),
				fmt.Sprintf("%.1f µs", d.EventCPU), megabytes(d.Process), fmt.Sprintf("%.0f", d.Queries),
				strconv.FormatInt(d.Counts.Lost(), 10), strconv.FormatInt(d.Counts.Disorder, 10),
			})
		}
		out = append(out, t)
	}
	return out
}

func cores(c Cost) string {
	if c == (Cost{}) {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*c.Cores)
}

func megabytes(c Cost) string {
	if c.PeakMB == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f MB", c.PeakMB)
}

// sentences compare the relay with the rest.
func (r *Report) sentences() []string {
	var out []string
	if i := r.Idle; i != nil {
		out = append(out, fmt.Sprintf("Idle, %d streams: the relay takes %.1f %% of a core, the database %.1f %%, with %.0f queries/s.",
			i.Streams, 100*i.Relay.Cores, 100*i.Database.Cores, i.Queries))
	}
	var ours, peer []*Contender
	for i := range r.Latency {
		if c := &r.Latency[i]; strings.HasPrefix(c.Name, "relay") {
			ours = append(ours, c)
		} else {
			peer = append(peer, c)
		}
	}
	for _, p := range peer {
		for _, o := range ours {
			out = append(out, fmt.Sprintf("%s : %s = %.3g of its p50, %.3g of its p99, %.3g of its queries, %.3g of its CPU.",
				o.Name, p.Name, o.Intended.P50/p.Intended.P50, o.Intended.P99/p.Intended.P99, o.Queries/p.Queries, o.Process.Cores/max(p.Process.Cores, 1e-9)))
		}
	}
	if s := r.Restart; s != nil {
		out = append(out, fmt.Sprintf("Killed at %g events/s and started again: first event published after %.2f s.", s.Rate, s.First))
	}
	return append(out, r.Counts.sentence())
}

// how describes the measurement.
func (r *Report) how() string {
	others := 0.0
	for _, c := range r.Latency {
		others = max(others, c.Others)
	}
	return r.Head.how(others, "load and consumer")
}

// how describes the measurement; with lists what else ran on the machine, and others is how
// many processors other processes kept busy.
func (h *Head) how(others float64, with string) string {
	engines := "a given cluster; this machine has " + with
	if h.Embedded {
		engines = "embedded engines (scyllafake, kfake), each a process of its own, on the same machine as " + with
	}
	medians := ""
	if h.Runs > 1 {
		medians = fmt.Sprintf("; medians of %d runs", h.Runs)
	}
	noise := ""
	if others > noisy {
		noise = fmt.Sprintf(" Other processes kept %.1f of the cores busy: use a quiet machine for reliable figures.", others)
	}
	how := fmt.Sprintf("%s; %s%s.%s", h.Machine, engines, medians, noise)
	if h.Machine.Database != "" {
		how += " " + h.Machine.Database
	}
	return how
}

// Printed is a report that can be printed.
type Printed interface {
	how() string
	tables() []table
	sentences() []string
}

// WriteText prints a report for a terminal.
func WriteText(w io.Writer, r Printed) error {
	fmt.Fprintln(w, r.how())
	for _, t := range r.tables() {
		fmt.Fprintf(w, "\n%s\n", t.title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range t.rows {
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, s := range r.sentences() {
		fmt.Fprintln(w, s)
	}
	return nil
}

// WriteMarkdown prints a report for docs/performance.md.
func WriteMarkdown(w io.Writer, r Printed) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.how())
	for _, t := range r.tables() {
		fmt.Fprintf(&b, "\n%s\n\n", t.title)
		for i, row := range t.rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
			}
		}
	}
	b.WriteString("\n")
	for _, s := range r.sentences() {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
