package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Head is the beginning of every report: the machine, the engines and the load.
type Head struct {
	Machine  Machine `json:"machine"`
	Runs     int     `json:"runs,omitempty"`
	Embedded bool    `json:"embedded_engines"`
	// Rate is the number of events or messages per second of the load, Payload the bytes of
	// each.
	Rate    float64 `json:"rate,omitempty"`
	Payload int     `json:"payload_bytes,omitempty"`
}

// Report is the result of a benchmark.
type Report struct {
	Head
	Idle     *Idle       `json:"idle,omitempty"`
	Latency  []Contender `json:"latency,omitempty"`
	Ceilings *Ceilings   `json:"ceilings,omitempty"`
	Drain    []Drained   `json:"drain,omitempty"`
	Restart  *Restarted  `json:"restart,omitempty"`
	// Counts are the relay's events, of all runs.
	Counts Counts `json:"counts"`
}

// Add adds the events of one measurement.
func (c *Counts) Add(more Counts) {
	c.Written += more.Written
	c.Consumed += more.Consumed
	c.Doubles += more.Doubles
	c.Disorder += more.Disorder
}

// sentence describes the relay's events of all runs.
func (c Counts) sentence() string {
	return fmt.Sprintf("The relay, all runs: %d events stored, %d consumed, %d double, %d out of order.", c.Written, c.Consumed, c.Doubles, c.Disorder)
}

// Machine describes the machine of the measurement.
type Machine struct {
	CPU   string `json:"cpu,omitempty"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Go    string `json:"go"`
	// Database describes the database and where its processor time comes from, as a
	// sentence; empty for an embedded one, whose process is measured.
	Database string `json:"database,omitempty"`
}

// ThisMachine describes this one.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	// Package procfs has CPUInfo on Linux only.
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, after, _ := strings.Cut(string(b), "\nmodel name\t: ")
		m.CPU, _, _ = strings.Cut(after, "\n")
	}
	return m
}

// String describes the machine in words.
func (m Machine) String() string {
	s := fmt.Sprintf("%d cores, %s, %s", m.Cores, m.OS, m.Go)
	if m.CPU != "" {
		s = m.CPU + ", " + s
	}
	return s
}

// Idle is the cost of an idle relay.
type Idle struct {
	Streams  int64   `json:"streams"`
	Relay    Cost    `json:"relay"`
	Database Cost    `json:"database"`
	Queries  float64 `json:"queries_per_second"`
}

// Contender is one way of getting events to a topic, under load.
type Contender struct {
	Name   string `json:"name"`
	Counts Counts `json:"counts"`
	// Intended is the time from when an event was to be sent until a consumer has it;
	// Committed, from when the database had confirmed it.
	Intended  Latency `json:"intended_ms"`
	Committed Latency `json:"committed_ms"`
	// Arrived is the rate at which the events came.
	Arrived Rate `json:"arrived"`
	// Process is the cost of the relay, or of the peer instead of it.
	Process  Cost    `json:"process"`
	Database Cost    `json:"database"`
	Broker   Cost    `json:"broker"`
	Queries  float64 `json:"queries_per_second"`
	// DatabaseEvent is the processor time of the database for an event, its write
	// included, in microseconds; 0 if it is not known.
	DatabaseEvent float64 `json:"database_us_per_event,omitempty"`
	// Others is how many processors the rest of the machine kept busy.
	Others float64 `json:"others_cores"`
}

// Ceilings are the rates of the clients alone.
type Ceilings struct {
	Read    Rate `json:"read"`
	Produce Rate `json:"produce"`
}

// OneAfterTheOther returns the rate of a program that reads and then produces: 1 /
// (1/read + 1/produce).
func (c *Ceilings) OneAfterTheOther() float64 {
	if c.Read.PerSecond == 0 || c.Produce.PerSecond == 0 {
		return 0
	}
	return 1 / (1/c.Read.PerSecond + 1/c.Produce.PerSecond)
}

// Drained is the result of draining a backlog.
type Drained struct {
	Name   string `json:"name"`
	Counts Counts `json:"counts"`
	// Start is the time from the start of the process to the first record.
	Start float64 `json:"start_seconds"`
	Rate  Rate    `json:"rate"`
	// Share is the rate as a part of that of a program that reads and then produces.
	Share   float64 `json:"share"`
	Process Cost    `json:"process"`
	// EventCPU is the processor time of an event, in microseconds.
	EventCPU float64 `json:"cpu_us_per_event"`
	Queries  float64 `json:"queries"`
}

// Restarted is the result for a relay that was killed under load.
type Restarted struct {
	Rate   float64 `json:"rate"`
	Counts Counts  `json:"counts"`
	// First is the time from the start of the new process to its first record at a
	// consumer.
	First float64 `json:"first_publish_seconds"`
}
