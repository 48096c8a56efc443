package jobs

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// State is where a job stands.
type State string

// The states of a job. Done, cancelled and failed ones stay so.
const (
	Queued    State = "queued"    // no runner has begun it
	Running   State = "running"   // a runner acts, or will when the last one's claim has run out
	Paused    State = "paused"    // by an operator, or by a canary
	Done      State = "done"      // the report is final
	Cancelled State = "cancelled" // by an operator; final once Finished is set
	Failed    State = "failed"    // it cannot be run: Error says why
)

// States are all states, in the order of a job's life.
var States = []State{Queued, Running, Paused, Done, Cancelled, Failed}

// Ended tells whether a job in the state acts on no more letters.
func (s State) Ended() bool { return s == Done || s == Cancelled || s == Failed }

// Actions are what a job can do to letters. ActionArchive is a sweep: it moves
// what is older than its retention to the archive and removes there what has
// expired, so it takes no letters.
var Actions = []dlq.Action{dlq.ActionReplay, dlq.ActionDiscard, dlq.ActionRelease, dlq.ActionResolve, dlq.ActionPark, dlq.ActionPurge, dlq.ActionRestore, dlq.ActionArchive}

const (
	// DefaultBatchSize is how many letters a job acts on between two saves.
	DefaultBatchSize = 100
	// MaxBatchSize bounds what a job's row holds.
	MaxBatchSize = 1000
	// MaxIDs is how many letters a job may name; more need a filter.
	MaxIDs = 10_000
	// DefaultFollow is how long a job waits for what becomes of a letter that it
	// replayed.
	DefaultFollow = 10 * time.Minute
)

// Spec is what a job is to do.
type Spec struct {
	// Action is one of Actions.
	Action dlq.Action `json:"action"`
	// Filter says which letters, unless IDs does. Without Status open ones are
	// meant; of a purge those that it may purge, of a restore archived ones. What
	// dies after the job was made is not, nor to a purge what was purged before.
	Filter dlq.Filter `json:"filter"`
	// IDs names the letters, at most MaxIDs.
	IDs []gocql.UUID `json:"ids,omitempty"`
	// Limit is how many letters the job looks at, those that died last; 0 means all.
	Limit int `json:"limit,omitempty"`
	// Rate is letters per second; 0 means as fast as it goes.
	Rate float64 `json:"rate,omitempty"`
	// BatchSize is how many letters lie between two saves. Default
	// DefaultBatchSize, at most MaxBatchSize, which is the default of a purge: each
	// batch is an object of the archive, or several if it is large.
	BatchSize int `json:"batch_size"`
	// Canary lets a replay begin with 1, 2, 5 and 20 letters, and waits each time
	// for what becomes of them. The job pauses if one dies of the same error
	// class as before.
	Canary bool `json:"canary,omitempty"`
	// Follow is how long a replay waits for what becomes of a letter, from the
	// batch on that it was in. Default DefaultFollow; negative means not at all.
	Follow time.Duration `json:"follow"`
	// Force, of a purge, admits failed and manual letters, as Purge.Force does.
	Force bool `json:"force,omitempty"`
	// NoArchive, of a purge, writes the letters to no archive: they are lost.
	NoArchive bool `json:"no_archive,omitempty"`
}

// needsArchive says that only a runner with an archive can run the job.
func (s *Spec) needsArchive() bool {
	switch s.Action {
	case dlq.ActionPurge:
		return !s.NoArchive
	case dlq.ActionRestore, dlq.ActionArchive:
		return true
	}
	return false
}

// Statuses are those that a filter means that names none.
func (s *Spec) Statuses() []dlq.Status {
	switch {
	case s.Action == dlq.ActionPurge && s.Force:
		return []dlq.Status{dlq.Resolved, dlq.Archived, dlq.Failed, dlq.Manual}
	case s.Action == dlq.ActionPurge:
		return []dlq.Status{dlq.Resolved, dlq.Archived}
	case s.Action == dlq.ActionRestore:
		return []dlq.Status{dlq.Archived}
	}
	return slices.Clone(dlq.OpenStatuses)
}

// Means tells whether the job is about a letter of its filter. Outlines, which a
// purge leaves, are on the same list as archived letters that are whole.
func (s *Spec) Means(l *dlq.DeadLetter) bool {
	return s.Action != dlq.ActionPurge || l.PurgedAt.IsZero()
}

// withDefaults is the specification of a job made at now.
func (s Spec) withDefaults(now time.Time) Spec {
	switch {
	case s.BatchSize != 0:
	case s.Action == dlq.ActionPurge:
		s.BatchSize = MaxBatchSize
	default:
		s.BatchSize = DefaultBatchSize
	}
	if s.Follow == 0 {
		s.Follow = DefaultFollow
	}
	if len(s.IDs) > 0 {
		s.IDs = unique(s.IDs)
		return s
	}
	if s.Action == dlq.ActionArchive {
		return s
	}
	if len(s.Filter.Status) == 0 {
		s.Filter.Status = s.Statuses()
	}
	if s.Filter.Until.IsZero() || s.Filter.Until.After(now) {
		s.Filter.Until = now
	}
	return s
}

func unique(ids []gocql.UUID) (out []gocql.UUID) {
	seen := make(map[gocql.UUID]bool, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// Validate reports everything that is wrong with the specification.
func (s *Spec) Validate() error {
	var errs []error
	if !slices.Contains(Actions, s.Action) {
		errs = append(errs, fmt.Errorf("action %q: use one of %v", s.Action, Actions))
	}
	if len(s.IDs) > MaxIDs {
		errs = append(errs, fmt.Errorf("%d ids: name at most %d, or use a filter", len(s.IDs), MaxIDs))
	}
	if len(s.IDs) > 0 && !s.Filter.Empty() {
		errs = append(errs, errors.New("ids and a filter: use one or the other"))
	}
	if s.Action == dlq.ActionArchive && (len(s.IDs) > 0 || !s.Filter.Empty() || s.Limit > 0 || s.Rate > 0 || s.BatchSize > 0) {
		errs = append(errs, errors.New("archive: it sweeps all letters by their age, and takes no ids, filter, limit, rate or batch size"))
	}
	if (s.Force || s.NoArchive) && s.Action != dlq.ActionPurge {
		errs = append(errs, fmt.Errorf("force, no archive: only a purge has them, not %s", s.Action))
	}
	if s.Limit < 0 {
		errs = append(errs, fmt.Errorf("limit %d: must not be negative", s.Limit))
	}
	if s.Rate < 0 || math.IsNaN(s.Rate) || math.IsInf(s.Rate, 0) {
		errs = append(errs, fmt.Errorf("rate %v: must be letters per second, 0 for no limit", s.Rate))
	}
	if s.BatchSize < 0 || s.BatchSize > MaxBatchSize {
		errs = append(errs, fmt.Errorf("batch size %d: must be 1 to %d", s.BatchSize, MaxBatchSize))
	}
	if s.Canary && s.Action != dlq.ActionReplay {
		errs = append(errs, fmt.Errorf("canary: only a replay has one, not %s", s.Action))
	}
	if s.Canary && s.Follow < 0 {
		errs = append(errs, errors.New("canary: it has to wait for what becomes of letters, so follow must not be negative"))
	}
	if err := s.Filter.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Progress is how far a job is, and at its end its report.
type Progress struct {
	// Total is how many letters the job is about, counted when it began; 0 before.
	Total int `json:"total"`
	// Done is how many it has acted on or passed over.
	Done int `json:"done"`
	// Changed is how many it has changed.
	Changed int `json:"changed"`
	// Replayed, of a replay, are in their topics now.
	Replayed int `json:"replayed"`
	// FailedAgain, of a replay, died again, by error class.
	FailedAgain map[string]int `json:"failed_again,omitempty"`
	// Overtaken, of a replay, were discarded, resolved, parked or released by
	// somebody before the relay came to them.
	Overtaken int `json:"overtaken,omitempty"`
	// Waiting, of a replay, are those of which nothing is known yet. In the report
	// of a finished job the time was up.
	Waiting int `json:"waiting"`
	// Skipped were not changed, by reason: the status in which the action cannot
	// begin, "claimed", "missing", "changed meanwhile", "as wanted already"; of a
	// restore "no copy", of a sweep "held" by others that are parked behind them.
	Skipped map[string]int `json:"skipped,omitempty"`
}

// Failed is how many letters died again.
func (p *Progress) Failed() (n int) { return sumOf(p.FailedAgain) }

// SkippedAll is how many letters were passed over.
func (p *Progress) SkippedAll() (n int) { return sumOf(p.Skipped) }

// Job is a bulk operation on dead letters. Times have milliseconds.
type Job struct {
	// ID tells jobs apart, and when they were made.
	ID gocql.UUID
	Spec
	// Actor made it.
	Actor dlq.Actor
	State State
	// Version counts the job's changes, from 1.
	Version  int64
	Progress Progress
	// Error is why the job paused by itself or failed.
	Error string
	// ClaimedBy runs it until ClaimedUntil.
	ClaimedBy    string
	ClaimedUntil time.Time
	// Started and Finished are zero before. With Finished the report is final.
	Started, Finished time.Time
	// History is who did what to the job, oldest first.
	History []JobChange

	writtenBy gocql.UUID // which change made the version
	cursor    cursor
	batch     int64        // of batchIDs, from 1
	ids       []gocql.UUID // the batch that is being acted on
}

// Created is when the job was made.
func (j *Job) Created() time.Time { return j.ID.Time().UTC().Truncate(time.Millisecond) }

// JobChange is a line of a job's history.
type JobChange struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
	By   string    `json:"by"`
	Why  string    `json:"why,omitempty"`
}

// cursor is where a job goes on, and what is counted so far.
type cursor struct {
	// After is the last letter of the batches so far, and At how many they had.
	After dlq.Position `json:"after,omitzero"`
	At    int          `json:"at,omitempty"`
	// End says that there is no batch after the current one.
	End bool `json:"end,omitempty"`
	// Canary is how many batches were sized by the canary.
	Canary int `json:"canary,omitempty"`
	// Warned is up to which batch the canary has paused the job already.
	Warned int64 `json:"warned,omitempty"`
	// Acted is what became of the batches before the current one.
	Acted acted `json:"acted,omitzero"`
	// Followed are the batches, from the first on, of whose letters everything is
	// known or given up, and Known what that is.
	Followed int64    `json:"followed,omitempty"`
	Known    followed `json:"known,omitzero"`
}

// acted counts what was done to letters.
type acted struct {
	Changed int            `json:"changed,omitempty"`
	Skipped map[string]int `json:"skipped,omitempty"`
}

func (a acted) plus(b acted) acted {
	return acted{a.Changed + b.Changed, sum(a.Skipped, b.Skipped)}
}

// followed counts what became of letters that were replayed.
type followed struct {
	Replayed  int            `json:"replayed,omitempty"`
	Overtaken int            `json:"overtaken,omitempty"`
	Failed    map[string]int `json:"failed,omitempty"`
}

func (f followed) plus(g followed) followed {
	return followed{f.Replayed + g.Replayed, f.Overtaken + g.Overtaken, sum(f.Failed, g.Failed)}
}

func sum(a, b map[string]int) map[string]int {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(map[string]int, len(a)+len(b))
	for _, m := range []map[string]int{a, b} {
		for k, n := range m {
			out[k] += n
		}
	}
	return out
}

// progress is what the counts of a job make.
func (j *Job) progress(a acted, f followed) Progress {
	p := Progress{Total: j.Progress.Total, Changed: a.Changed, Skipped: a.Skipped}
	p.Done = p.Changed + p.SkippedAll()
	if j.Action == dlq.ActionReplay {
		p.Replayed, p.Overtaken, p.FailedAgain = f.Replayed, f.Overtaken, f.Failed
		p.Waiting = p.Changed - p.Replayed - p.Overtaken - p.Failed()
	}
	return p
}
