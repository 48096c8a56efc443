package bench

import (
	"fmt"
	"strings"
)

// Name returns the name of the phase in a table.
func (p *Phase) Name() string {
	name := p.Kind + ", " + p.Load
	if p.What != "" {
		name = p.What + ", " + name
	}
	return name
}

// Kinds of phases.
const (
	// Raw is the client alone: it writes the rows, without HTTP.
	Raw = "raw client"
	// Bare is a handler that only writes the rows.
	Bare = "bare handler"
	// Whole is the service.
	Whole = "service"
)

// Phase is the result of one load on one kind.
type Phase struct {
	// What is the type of request, Kind the handler, Load the way of offering it.
	What string `json:"what"`
	Kind string `json:"kind"`
	Load string `json:"load"`
	Offered
	// Own is the time of requests in the handler beside the database, in ms.
	Own Latency `json:"own_ms"`
}

// ServiceReport is the result of a benchmark of a service.
type ServiceReport struct {
	Head
	// Title describes the measurement, Rows the rows that are written for one request of each type.
	Title  string  `json:"title"`
	Rows   string  `json:"rows"`
	Phases []Phase `json:"phases"`
	// Goals are sentences that compare phases.
	Goals []string `json:"goals"`
}

// Find returns the phase of that kind and load, an empty one if there is none.
func (r *ServiceReport) Find(what, kind, load string) *Phase {
	for i := range r.Phases {
		if p := &r.Phases[i]; p.What == what && p.Kind == kind && p.Load == load {
			return p
		}
	}
	return new(Phase)
}

// OK reports whether no call failed except by refusal.
func (r *ServiceReport) OK() bool {
	for i := range r.Phases {
		if r.Phases[i].Failed > 0 {
			return false
		}
	}
	return true
}

func (r *ServiceReport) sentences() []string { return r.Goals }

func (r *ServiceReport) how() string {
	others := 0.0
	for i := range r.Phases {
		others = max(others, r.Phases[i].Others)
	}
	return r.Head.how(others, "the load") + " " + r.Rows
}

func (r *ServiceReport) tables() []table {
	t := table{title: r.Title, rows: [][]string{{
		"", "offered/s", "served/s", "refused", "unavailable", "not sent", "p50", "p95", "p99", "from when to be sent p99", "a refusal p99", "to a patient caller", "own time p95", "CPU for one, µs: service", "database", "caller",
	}}}
	for i := range r.Phases {
		p := &r.Phases[i]
		t.rows = append(t.rows, []string{
			p.Name(), fmt.Sprintf("%.0f", p.Offered.Offered), fmt.Sprintf("%.0f", p.Served.PerSecond),
			percent(p.Refused), percent(p.Unavailable), percent(p.Unsent),
			millis(p.Sent.P50), millis(p.Sent.P95), millis(p.Sent.P99), millis(p.Intended.P99), millis(p.Refusal.P99), millis(p.PatientRefusal.P99), millis(p.Own.P95),
			micros(p.Process), micros(p.Database), micros(p.Caller),
		})
	}
	return []table{t}
}

func percent(share float64) string {
	if share == 0 {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*share), ".0") + " %"
}

func millis(ms float64) string {
	switch {
	case ms == 0:
		return ""
	case ms < 10:
		return fmt.Sprintf("%.2f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}

func micros(us float64) string {
	if us == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", us)
}
