package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
)

// Store is the jobs of one keyspace. It is safe for concurrent use, by any number of
// processes.
type Store struct {
	db   *db.DB
	dead *dlq.Store
	// sorted limits the dead letters that are sorted by priority: MaxIDs, fewer in tests.
	sorted int
	stmt   statements
}

// New returns the jobs of the keyspace of a store of dead letters. It executes no
// statement.
func New(d *dlq.Store) *Store {
	return &Store{db: d.DB(), dead: d, sorted: MaxIDs, stmt: newStatements(d.DB().Keyspace)}
}

// ErrNoJob is returned for a job that does not exist.
var ErrNoJob = errors.New("no such job")

// StateError reports that the state of a job does not allow the change. Nothing was
// changed.
type StateError struct {
	ID    gocql.UUID
	State State
	// What names the requested change.
	What string
}

func (e *StateError) Error() string {
	return fmt.Sprintf("%s job %s: refused, its state is %s", e.What, e.ID, e.State)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *StateError) Is(target error) bool { return target == dlq.ErrRefused }

// Create stores a job. It is queued: any Runner on the same tables may take
// it, now or later.
//
// After an error the job may be there or not; Jobs shows it.
func (s *Store) Create(ctx context.Context, spec Spec, by dlq.Actor) (*Job, error) {
	return s.create(ctx, gocql.UUIDFromTime(s.db.Clock.Now()), spec, by)
}

func (s *Store) create(ctx context.Context, id gocql.UUID, spec Spec, by dlq.Actor) (*Job, error) {
	if by.Name == "" {
		return nil, errors.New("create a job: the actor has no name")
	}
	if err := spec.Validate(); err != nil {
		return nil, fmt.Errorf("create a job: %w", err)
	}
	if spec.ByPriority {
		var err error
		if spec, err = s.sortByPriority(ctx, spec); err != nil {
			return nil, fmt.Errorf("create a job: %w", err)
		}
	}
	at := id.Time().UTC().Truncate(time.Millisecond)
	j := &Job{
		ID: id, Spec: spec.withDefaults(at), Actor: by, State: Queued, Version: 1,
		History: []JobChange{{At: at, What: "create", By: by.Name, Why: by.Reason}},
	}
	if n := len(j.IDs); n > 0 {
		j.Progress.Total = j.withinLimit(n)
	}
	for a := s.db.Retry(ctx); ; {
		// The lists are written first, so that a stored job is in them.
		err := s.listJob(ctx, j)
		if err == nil {
			err = s.insertJob(ctx, j)
		}
		if err == nil {
			return j, nil
		}
		if db.Permanent(err) || !a.Pause() {
			return nil, err
		}
	}
}

// withinLimit returns the part of n dead letters within the limit.
func (j *Job) withinLimit(n int) int {
	if j.Limit > 0 {
		return min(n, j.Limit)
	}
	return n
}

// Read returns a job, or ErrNoJob.
func (s *Store) Read(ctx context.Context, id gocql.UUID) (*Job, error) {
	return s.readJob(ctx, id, s.db.Consistency)
}

// List returns up to limit jobs, the newest first, that were made before the job
// after; from the newest on if after is zero.
func (s *Store) List(ctx context.Context, after gocql.UUID, limit int) ([]*Job, error) {
	months, err := s.jobMonths(ctx, after)
	if err != nil {
		return nil, err
	}
	var out []*Job
	for _, month := range months {
		ids, err := s.jobIDs(ctx, month, after, limit-len(out))
		if err != nil {
			return nil, err
		}
		jobs, err := s.ReadMany(ctx, ids)
		if err != nil {
			return nil, err
		}
		if out = append(out, jobs...); len(out) >= limit {
			break
		}
	}
	return out, nil
}

// ListOpen returns the jobs that are not finished, the oldest first.
func (s *Store) ListOpen(ctx context.Context) ([]*Job, error) {
	ids, err := s.jobIDs(ctx, openJobs, gocql.UUID{}, maxOpenJobs)
	if err != nil {
		return nil, err
	}
	jobs, err := s.ReadMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	slices.Reverse(jobs)
	return slices.DeleteFunc(jobs, func(j *Job) bool { return !j.Finished.IsZero() }), nil
}

// maxOpenJobs limits the jobs of one poll.
const maxOpenJobs = 1000

// Pause stops the runner between two dead letters. Pausing a paused job is not an
// error.
func (s *Store) Pause(ctx context.Context, id gocql.UUID, by dlq.Actor) error {
	return s.steer(ctx, id, "pause", by, func(j *Job) (bool, error) {
		switch {
		case j.State == Paused:
			return false, nil
		case j.State.Ended():
			return false, &StateError{j.ID, j.State, "pause"}
		}
		j.State = Paused
		return true, nil
	})
}

// Resume continues a paused job where it stopped. It does nothing to a job that is not
// paused.
func (s *Store) Resume(ctx context.Context, id gocql.UUID, by dlq.Actor) error {
	return s.steer(ctx, id, "resume", by, func(j *Job) (bool, error) {
		switch {
		case j.State.Ended():
			return false, &StateError{j.ID, j.State, "resume"}
		case j.State != Paused:
			return false, nil
		}
		j.State, j.Error, j.cursor.Failed = Queued, "", nil
		return true, nil
	})
}

// Cancel stops the job for good; its changes remain. The report is final immediately if
// the counts are complete; otherwise after a runner has determined the results of the
// current batch and of the replays.
func (s *Store) Cancel(ctx context.Context, id gocql.UUID, by dlq.Actor) error {
	return s.steer(ctx, id, "cancel", by, func(j *Job) (bool, error) {
		switch {
		case j.State == Cancelled:
			return false, nil
		case j.State.Ended():
			return false, &StateError{j.ID, j.State, "cancel"}
		}
		if j.State = Cancelled; j.isReported() && !j.isClaimed(s.db.Clock.Now()) {
			j.Finished, j.ClaimedBy, j.ClaimedUntil = s.db.Millis(), "", time.Time{}
		}
		return true, nil
	})
}

// isReported reports whether the counts of a job are complete.
func (j *Job) isReported() bool {
	return j.Started.IsZero() || len(j.ids) == 0 && (!j.follows() || j.cursor.Followed >= j.batch)
}

// follows reports whether the job waits for the results of its replays.
func (j *Job) follows() bool { return j.Action.Publishes() && j.Follow >= 0 }

// isClaimed reports whether a runner owns the job.
func (j *Job) isClaimed(now time.Time) bool { return j.ClaimedBy != "" && now.Before(j.ClaimedUntil) }

// steer makes an operator's change of a job, with a line in its history.
func (s *Store) steer(ctx context.Context, id gocql.UUID, what string, by dlq.Actor, plan func(*Job) (bool, error)) error {
	if by.Name == "" {
		return fmt.Errorf("%s job %s: the actor has no name", what, id)
	}
	_, err := s.changeJob(ctx, id, what, func(j *Job) (bool, error) {
		change, err := plan(j)
		if change && err == nil {
			j.History = append(j.History, JobChange{At: s.db.Millis(), What: what, By: by.Name, Why: by.Reason})
		}
		return change, err
	})
	return err
}

// changeJob makes one change of a job by a lightweight transaction and returns the job
// after it. plan modifies the given job and reports whether anything changed. It is
// called again if another process was first, so it must set values and not add to them.
func (s *Store) changeJob(ctx context.Context, id gocql.UUID, what string, plan func(*Job) (bool, error)) (*Job, error) {
	cons, mine := s.db.Consistency, make(map[gocql.UUID]bool)
	for a := s.db.Retry(ctx); ; {
		j, err := s.readJob(ctx, id, cons)
		if err == nil && mine[j.writtenBy] {
			return s.unlistJob(ctx, j), nil // applied, and the response was lost
		}
		var change bool
		if err == nil {
			lines := len(j.History)
			change, err = plan(j)
			switch {
			case err != nil:
			case !change && cons == s.db.Serial:
				return s.unlistJob(ctx, j), nil
			case change: // without one another change may be decided and invisible
				by := gocql.UUIDFromTime(s.db.Clock.Now())
				var applied bool
				if applied, err = s.updateJob(ctx, j, by, j.History[lines:]); applied {
					return s.unlistJob(ctx, j), nil
				}
				if err != nil {
					mine[by] = true
				}
			}
		}
		switch final := cons == s.db.Serial; {
		case (errors.Is(err, dlq.ErrRefused) || errors.Is(err, ErrNoJob)) && !final:
			// A read at a weaker level may be out of date: repeat it at the serial
			// level.
		case errors.Is(err, dlq.ErrRefused), errors.Is(err, ErrNoJob), db.Permanent(err):
			return nil, err
		case !a.Pause():
			if err == nil {
				err = fmt.Errorf("%s job %s: it changed concurrently in every attempt", what, id)
			}
			return nil, err
		}
		cons = s.db.Serial
	}
}

// monthBucket is the bucket of a job in the list of all.
func monthBucket(at time.Time) time.Time {
	at = at.UTC()
	return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// openJobs is the bucket of the jobs that are not finished.
var openJobs = time.Unix(0, 0).UTC()

// monthKind is the kind of the rows of dead_letter_buckets that name the months.
const monthKind = "job"

// chunk limits the rows that one query reads or one batch writes.
const chunk = 100
