package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// reportLife is the retention of reports, equal to that of a relay's status.
const reportLife = 12 * time.Hour

// States of a rule in a process.
const (
	Running = "running"
	Stopped = "stopped"
)

// Report is the state of a rule in a process.
type Report struct {
	Rule string
	// Instance names the process.
	Instance string
	At       time.Time
	Definition
	Progress
}

// Definition is a rule as a process has it.
type Definition struct {
	Plugin         string   `json:"plugin" doc:"Target or plugin of the rule"`
	Kind           string   `json:"kind" enum:"target,plugin" doc:"A target notifies people and services; a plugin is Go code of the process"`
	Topics         []string `json:"topics" nullable:"false"`
	Types          []string `json:"types,omitempty" nullable:"false" doc:"Absent for all event types"`
	When           string   `json:"when,omitempty" doc:"The CEL expression that must be true"`
	Order          string   `json:"order" enum:"aggregate,none"`
	Attempts       int      `json:"attempts" doc:"How often an event is tried at most"`
	TimeoutSeconds float64  `json:"timeout_seconds" doc:"Time-out of one attempt"`
	Concurrency    int      `json:"concurrency" doc:"How many events the plugin gets at the same time, in each process"`
	Queue          int      `json:"queue" doc:"How many events may wait in a process"`
}

// Progress is the progress of a rule in a process. Counts start with the
// process.
type Progress struct {
	State         string     `json:"state" enum:"running,stopped"`
	StartedAt     time.Time  `json:"started_at"`
	Partitions    int        `json:"partitions" doc:"How many partitions of its topics it has"`
	Waiting       int        `json:"waiting" doc:"Events in memory, including retries"`
	UnderWay      int        `json:"under_way" doc:"Calls of the plugin"`
	Stuck         int        `json:"stuck" doc:"Calls that are past their time and have not returned"`
	OldestSeconds float64    `json:"oldest_waiting_seconds" doc:"How long the event has waited that has waited longest"`
	Records       int64      `json:"records" doc:"Records that the rule read"`
	Delivered     int64      `json:"delivered"`
	Failed        int64      `json:"failed"`
	Errors        int64      `json:"errors" doc:"Attempts that failed"`
	Undecided     int64      `json:"undecided" doc:"Events for which its expression could not be evaluated"`
	Repeats       int64      `json:"repeats" doc:"Started repeats on request"`
	StoreErrors   int64      `json:"store_errors" doc:"Failed reads and writes of deliveries; retried"`
	LastError     string     `json:"last_error,omitempty" doc:"That of the last attempt that failed, up to 500 bytes"`
	LastErrorAt   *time.Time `json:"last_error_at,omitempty"`
}

// status is the part of a Report that is stored as JSON.
type status struct {
	Definition
	Progress
}

// Report writes the reports of a process with the current time as At. Reports
// expire after 12 hours.
func (s *Store) Report(ctx context.Context, all []Report) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	// All are in one partition, so this is one write.
	b := s.cfg.Session.Batch(gocql.UnloggedBatch).WithContext(ctx).RetryPolicy(cqlcode.OtherNode{}).DefaultTimestamp(false)
	b.SetConsistency(s.cfg.Consistency)
	now := s.cfg.Now()
	for i := range all {
		r := &all[i]
		r.LastError = cut(r.LastError)
		text, err := json.Marshal(status{r.Definition, r.Progress})
		if err != nil {
			return fmt.Errorf("report rule %s: %w", r.Rule, err)
		}
		b.Query(s.stmt.putReport, r.Rule, r.Instance, now, string(text), int(reportLife/time.Second))
		b.Entries[i].Idempotent = true
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("report on rules: %w", err)
	}
	return nil
}

// Reports returns the last reports of all processes, by rule and instance.
func (s *Store) Reports(ctx context.Context) ([]Report, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var out []Report
	iter := s.query(ctx, s.stmt.reports).Iter()
	for {
		var r Report
		var text string
		if !iter.Scan(&r.Rule, &r.Instance, &r.At, &text) {
			break
		}
		r.At = r.At.UTC()
		var st status
		if err := json.Unmarshal([]byte(text), &st); err != nil {
			_ = iter.Close()
			return nil, fmt.Errorf("read the report of %s about rule %s: %w", r.Instance, r.Rule, err)
		}
		r.Definition, r.Progress = st.Definition, st.Progress
		out = append(out, r)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the reports of rules: %w", err)
	}
	return out, nil
}
