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

// State is the state of a job.
type State string

// The states of a job. Done, cancelled and failed ones stay so.
const (
	Queued    State = "queued"    // no runner has begun it
	Running   State = "running"   // claimed, or to be claimed once the last claim has expired
	Paused    State = "paused"    // by an operator, or by a canary
	Done      State = "done"      // the report is final
	Cancelled State = "cancelled" // by an operator; final once Finished is set
	Failed    State = "failed"    // a permanent error, in Error
)

// States are all states, in the order of a job's life.
var States = []State{Queued, Running, Paused, Done, Cancelled, Failed}

// Ended reports whether a job in the state changes no more dead letters.
func (s State) Ended() bool { return s == Done || s == Cancelled || s == Failed }

// Actions are the actions of jobs. ActionArchive is a sweep: it moves dead letters that
// are older than their retention to the archive and removes expired objects, so it
// takes no ids and no filter.
var Actions = []dlq.Action{dlq.ActionReplay, dlq.ActionRedirect, dlq.ActionDiscard, dlq.ActionUnblock, dlq.ActionResolve, dlq.ActionReopen, dlq.ActionSuspend, dlq.ActionSet, dlq.ActionPurge, dlq.ActionRestore, dlq.ActionArchive}

const (
	// DefaultBatchSize is the default number of dead letters between two saves.
	DefaultBatchSize = 100
	// MaxBatchSize limits the size of a job's row.
	MaxBatchSize = 1000
	// MaxIDs limits the ids of a job; more need a filter.
	MaxIDs = 10_000
	// DefaultFollow is the default time that a job waits for the results of its
	// replays.
	DefaultFollow = 10 * time.Minute
)

// Spec is the definition of a job.
type Spec struct {
	// Action is one of Actions.
	Action dlq.Action `json:"action"`
	// Filter selects the dead letters, unless IDs does. Without Status it selects open
	// ones; for a purge the ones that it may purge, for a restore archived ones, for reopen resolved ones. It
	// does not select later failures, and for a purge not purged ones.
	Filter dlq.Filter `json:"filter"`
	// IDs are the events of the dead letters, at most MaxIDs.
	IDs []gocql.UUID `json:"ids,omitempty"`
	// Limit limits the dead letters to those with the latest first failure; 0 means
	// all.
	Limit int `json:"limit,omitempty"`
	// Rate limits dead letters per second; 0 means no limit.
	Rate float64 `json:"rate,omitempty"`
	// BatchSize is the number of dead letters between two saves. Default
	// DefaultBatchSize, at most MaxBatchSize, which is the default of a purge: each
	// batch is an object of the archive, or several if it is large.
	BatchSize int `json:"batch_size"`
	// Canary starts a replay with batches of 1, 2, 5 and 20 dead letters and waits for
	// the results of each. The job pauses if one fails with its previous error class.
	Canary bool `json:"canary,omitempty"`
	// Follow is the time that a replay waits for the results of a batch. Default
	// DefaultFollow; negative means that it does not wait.
	Follow time.Duration `json:"follow"`
	// Force, of a purge, includes failed and suspended dead letters, like Purge.Force.
	Force bool `json:"force,omitempty"`
	// NoArchive, of a purge, writes no copies: the content is lost.
	NoArchive bool `json:"no_archive,omitempty"`
	// Set is the change of ActionSet.
	Set *dlq.Labels `json:"set,omitempty"`
	// Topic is the topic of ActionRedirect.
	Topic string `json:"topic,omitempty"`
	// ByPriority, of a replay, requests the replay of higher priorities first, and of
	// equal ones that of the oldest first failure. Create sorts the dead letters, at
	// most MaxIDs, and stores their ids. RunnerConfig.Concurrency of them are changed
	// concurrently, and the relay keeps the order of each aggregate.
	ByPriority bool `json:"by_priority,omitempty"`
	// InOrder, of IDs, changes one dead letter after the other, in the order of IDs.
	InOrder bool `json:"in_order,omitempty"`
	// Redelivery, of a replay, selects messages of a subscription in place of dead letters. The
	// runner makes their dead letters, stores them as IDs, and replays these in order.
	Redelivery *Redelivery `json:"redelivery,omitempty"`
}

// needsPreparation reports whether a runner makes the dead letters of the job before it changes them.
func (s *Spec) needsPreparation() bool { return s.Redelivery != nil && len(s.IDs) == 0 }

// needsArchive reports whether only a runner with an archive can run the job.
func (s *Spec) needsArchive() bool {
	switch s.Action {
	case dlq.ActionPurge:
		return !s.NoArchive
	case dlq.ActionRestore, dlq.ActionArchive:
		return true
	}
	return false
}

// Statuses returns the statuses of a filter without Status.
func (s *Spec) Statuses() []dlq.Status {
	switch {
	case s.Action == dlq.ActionPurge && s.Force:
		return []dlq.Status{dlq.Resolved, dlq.Archived, dlq.Failed, dlq.Suspended}
	case s.Action == dlq.ActionPurge:
		return []dlq.Status{dlq.Resolved, dlq.Archived}
	case s.Action == dlq.ActionReopen:
		return []dlq.Status{dlq.Resolved}
	case s.Action == dlq.ActionRestore:
		return []dlq.Status{dlq.Archived}
	}
	return slices.Clone(dlq.OpenStatuses)
}

// Means reports whether the job changes a dead letter that matches its filter. The list
// of archived dead letters also contains outlines, which a purge excludes, and the one of resolved
// dead letters those whose event is in its topic, which reopen excludes.
func (s *Spec) Means(l *dlq.DeadLetter) bool {
	switch s.Action {
	case dlq.ActionPurge:
		return l.PurgedAt.IsZero()
	case dlq.ActionReopen:
		return l.Reopens()
	}
	return true
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
	if s.Redelivery != nil {
		r := *s.Redelivery
		s.Redelivery, r.Until = &r, clipEnd(now, r.Until)
		return s
	}
	if len(s.Filter.Status) == 0 {
		s.Filter.Status = s.Statuses()
	}
	s.Filter.Until = clipEnd(now, s.Filter.Until)
	return s
}

// clipEnd returns the end of a period: until, or now if that is earlier or until is zero.
func clipEnd(now, until time.Time) time.Time {
	if until.IsZero() || until.After(now) {
		return now
	}
	return until
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
		errs = append(errs, errors.New("archive: it sweeps all dead letters by age; remove ids, filter, limit, rate and batch size"))
	}
	if (s.Force || s.NoArchive) && s.Action != dlq.ActionPurge {
		errs = append(errs, fmt.Errorf("force, no archive: only a purge has them, not %s", s.Action))
	}
	switch {
	case s.Action == dlq.ActionSet && s.Set == nil:
		errs = append(errs, errors.New("set: name a priority, a tag to add or a tag to remove"))
	case s.Action == dlq.ActionSet:
		errs = append(errs, s.Set.Validate())
	case s.Set != nil:
		errs = append(errs, fmt.Errorf("set: only the action set has it, not %s", s.Action))
	}
	switch {
	case s.Action != dlq.ActionRedirect && s.Topic != "":
		errs = append(errs, fmt.Errorf("topic: only the action redirect has it, not %s", s.Action))
	case s.Action == dlq.ActionRedirect && !dlq.ValidTopic(s.Topic):
		errs = append(errs, fmt.Errorf("topic %q: name a topic of at most 249 letters, digits and . _ -", s.Topic))
	}
	if s.ByPriority && s.Action != dlq.ActionReplay {
		errs = append(errs, fmt.Errorf("by priority: only a replay has it, not %s", s.Action))
	}
	if r := s.Redelivery; r != nil && (s.Action != dlq.ActionReplay || len(s.IDs) > 0 || !s.Filter.Empty() || s.ByPriority || s.Canary || s.Limit > 0) {
		errs = append(errs, errors.New("redelivery: it is a replay of its own messages, in their order; remove ids, filter, limit, priority and canary"))
	}
	if s.InOrder && len(s.IDs) == 0 {
		errs = append(errs, errors.New("in order: only ids have one, not a filter"))
	}
	if s.Limit < 0 {
		errs = append(errs, fmt.Errorf("limit %d: must not be negative", s.Limit))
	}
	if s.Rate < 0 || math.IsNaN(s.Rate) || math.IsInf(s.Rate, 0) {
		errs = append(errs, fmt.Errorf("rate %v: must be dead letters per second, 0 for no limit", s.Rate))
	}
	if s.BatchSize < 0 || s.BatchSize > MaxBatchSize {
		errs = append(errs, fmt.Errorf("batch size %d: must be 1 to %d", s.BatchSize, MaxBatchSize))
	}
	if s.Canary && s.Action != dlq.ActionReplay {
		errs = append(errs, fmt.Errorf("canary: only a replay has one, not %s", s.Action))
	}
	if s.Canary && s.Follow < 0 {
		errs = append(errs, errors.New("canary: it waits for the results of replays, so follow must not be negative"))
	}
	if err := s.Filter.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Progress is how far a job is, and at its end its report.
type Progress struct {
	// Total is the number of dead letters of the job, counted at its beginning; 0
	// before.
	Total int `json:"total"`
	// Reading, of a redelivery, is how its dead letters were made, before Total is known.
	Reading *Reading `json:"reading,omitempty"`
	// Done counts changed and skipped dead letters.
	Done int `json:"done"`
	// Changed counts changed dead letters.
	Changed int `json:"changed"`
	// Replayed, of a replay or a redirect, are in their topics now.
	Replayed int `json:"replayed"`
	// FailedAgain, of a replay or a redirect, counts failed replays by error class.
	FailedAgain map[string]int `json:"failed_again,omitempty"`
	// Overtaken, of a replay or a redirect, counts dead letters that were discarded, resolved, blocked
	// or unblocked before the relay replayed them.
	Overtaken int `json:"overtaken,omitempty"`
	// Waiting, of a replay or a redirect, counts unknown results. In the report of a finished job
	// they were unknown when the time to follow ended.
	Waiting int `json:"waiting"`
	// Skipped counts unchanged dead letters by reason: the status that does not allow
	// the action, "claimed", "missing", "changed concurrently", "already in that
	// state"; for a restore "no copy", for a sweep "held" if it blocks others.
	Skipped map[string]int `json:"skipped,omitempty"`
}

// Failed returns the number of failed replays.
func (p *Progress) Failed() (n int) { return sumCounts(p.FailedAgain) }

// SkippedAll returns the number of skipped dead letters.
func (p *Progress) SkippedAll() (n int) { return sumCounts(p.Skipped) }

// Job is a bulk change of dead letters. Times have milliseconds.
type Job struct {
	// ID is the key, and contains the time of creation.
	ID gocql.UUID
	Spec
	// Actor made it.
	Actor dlq.Actor
	State State
	// Version counts the job's changes, from 1.
	Version  int64
	Progress Progress
	// Error is the reason why the job paused by itself or failed.
	Error string
	// ClaimedBy runs it until ClaimedUntil.
	ClaimedBy    string
	ClaimedUntil time.Time
	// Started and Finished are zero before. With Finished the report is final.
	Started, Finished time.Time
	// History contains the operators' and the runner's changes of the job, oldest
	// first.
	History []JobChange

	writtenBy gocql.UUID // which change made the version
	prepared  bool       // this change stores IDs
	cursor    cursor
	batch     int64        // of batchIDs, from 1
	ids       []gocql.UUID // the batch that is being acted on
}

// CreatedAt returns the time of creation.
func (j *Job) CreatedAt() time.Time { return j.ID.Time().UTC().Truncate(time.Millisecond) }

// CanaryFailed returns the dead letters that failed again with their error and so paused the
// job, at most the dead letters of its first batches; none unless it is paused. A resumed
// job changes no dead letter twice: replay these by another job.
func (j *Job) CanaryFailed() []gocql.UUID {
	if j.State != Paused {
		return nil
	}
	return j.cursor.Failed
}

// JobChange is a line of a job's history.
type JobChange struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
	By   string    `json:"by"`
	Why  string    `json:"why,omitempty"`
}

// cursor is the position of a job, and its counts.
type cursor struct {
	// After is the last dead letter of the batches so far, and At their size.
	After dlq.Position `json:"after,omitzero"`
	At    int          `json:"at,omitempty"`
	// End reports that there is no batch after the current one.
	End bool `json:"end,omitempty"`
	// Canary is the number of batches whose size the canary has chosen.
	Canary int `json:"canary,omitempty"`
	// Warned is up to which batch the canary has paused the job already.
	Warned int64 `json:"warned,omitempty"`
	// Failed are the dead letters for which it paused the job last.
	Failed []gocql.UUID `json:"failed,omitempty"`
	// Acted counts the batches before the current one.
	Acted acted `json:"acted,omitzero"`
	// Followed is the number of batches, from the first on, whose results are known or
	// no longer awaited, and Known counts these results.
	Followed int64    `json:"followed,omitempty"`
	Known    followed `json:"known,omitzero"`
}

// acted counts changed and skipped dead letters.
type acted struct {
	Changed int            `json:"changed,omitempty"`
	Skipped map[string]int `json:"skipped,omitempty"`
}

func (a acted) plus(b acted) acted {
	return acted{a.Changed + b.Changed, sum(a.Skipped, b.Skipped)}
}

// followed counts the results of replays.
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

// progress returns the progress from the counts of a job.
func (j *Job) progress(a acted, f followed) Progress {
	p := Progress{Total: j.Progress.Total, Reading: j.Progress.Reading, Changed: a.Changed, Skipped: a.Skipped}
	p.Done = p.Changed + p.SkippedAll()
	if j.Action.Publishes() {
		p.Replayed, p.Overtaken, p.FailedAgain = f.Replayed, f.Overtaken, f.Failed
		p.Waiting = p.Changed - p.Replayed - p.Overtaken - p.Failed()
	}
	return p
}
