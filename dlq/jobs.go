package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// ErrNoJob is returned for a job that does not exist.
var ErrNoJob = errors.New("no such job")

// JobStateError says that a job stands where it cannot be changed so. Nothing
// was changed.
type JobStateError struct {
	ID    gocql.UUID
	State JobState
	// What was asked for.
	What string
}

func (e *JobStateError) Error() string {
	return fmt.Sprintf("%s job %s: refused, it is %s", e.What, e.ID, e.State)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *JobStateError) Is(target error) bool { return target == ErrRefused }

// CreateJob stores a job. It is queued: any Runner on the same tables may take
// it, now or later.
//
// After an error the job may be there or not; Jobs shows it.
func (s *Store) CreateJob(ctx context.Context, spec JobSpec, by Actor) (*Job, error) {
	if by.Name == "" {
		return nil, errors.New("create a job: the actor has no name")
	}
	if err := spec.Validate(); err != nil {
		return nil, fmt.Errorf("create a job: %w", err)
	}
	at := s.millis()
	j := &Job{
		ID: gocql.UUIDFromTime(s.now()), JobSpec: spec.withDefaults(at), Actor: by, State: JobQueued, Version: 1,
		History: []JobChange{{At: at, What: "create", By: by.Name, Why: by.Reason}},
	}
	if n := len(j.IDs); n > 0 {
		j.Progress.Total = j.looksAt(n)
	}
	for a := s.again(ctx); ; {
		// The lists come first: a job that stands is on them.
		err := s.listJob(ctx, j)
		if err == nil {
			err = s.insertJob(ctx, j)
		}
		if err == nil {
			return j, nil
		}
		if hopeless(err) || !a.Pause() {
			return nil, err
		}
	}
}

// looksAt is how many of n letters the job looks at.
func (j *Job) looksAt(n int) int {
	if j.Limit > 0 {
		return min(n, j.Limit)
	}
	return n
}

// Job returns a job; ErrNoJob if there is none.
func (s *Store) Job(ctx context.Context, id gocql.UUID) (*Job, error) {
	return s.readJob(ctx, id, s.cons)
}

// Jobs returns up to limit jobs, the newest first, that were made before the job
// after; from the newest on if after is zero.
func (s *Store) Jobs(ctx context.Context, after gocql.UUID, limit int) ([]*Job, error) {
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
		jobs, err := s.readJobs(ctx, ids)
		if err != nil {
			return nil, err
		}
		if out = append(out, jobs...); len(out) >= limit {
			break
		}
	}
	return out, nil
}

// OpenJobs returns the jobs that are not finished, the oldest first.
func (s *Store) OpenJobs(ctx context.Context) ([]*Job, error) {
	ids, err := s.jobIDs(ctx, openJobs, gocql.UUID{}, maxOpenJobs)
	if err != nil {
		return nil, err
	}
	jobs, err := s.readJobs(ctx, ids)
	if err != nil {
		return nil, err
	}
	slices.Reverse(jobs)
	return slices.DeleteFunc(jobs, func(j *Job) bool { return !j.Finished.IsZero() }), nil
}

// maxOpenJobs bounds how many jobs runners look at.
const maxOpenJobs = 1000

// PauseJob has the runner stop between two letters. A paused one stays so.
func (s *Store) PauseJob(ctx context.Context, id gocql.UUID, by Actor) error {
	return s.steer(ctx, id, "pause", by, func(j *Job) (bool, error) {
		switch {
		case j.State == JobPaused:
			return false, nil
		case j.State.Ended():
			return false, &JobStateError{j.ID, j.State, "pause"}
		}
		j.State = JobPaused
		return true, nil
	})
}

// ResumeJob lets a paused job go on where it was. One that is not paused goes on
// anyway.
func (s *Store) ResumeJob(ctx context.Context, id gocql.UUID, by Actor) error {
	return s.steer(ctx, id, "resume", by, func(j *Job) (bool, error) {
		switch {
		case j.State.Ended():
			return false, &JobStateError{j.ID, j.State, "resume"}
		case j.State != JobPaused:
			return false, nil
		}
		j.State, j.Error = JobQueued, ""
		return true, nil
	})
}

// CancelJob has the job act on no more letters. What it did stays done. The report
// is final at once if nothing has to be found out for it; otherwise once a runner
// has looked what became of the batch under way and of letters that were replayed.
func (s *Store) CancelJob(ctx context.Context, id gocql.UUID, by Actor) error {
	return s.steer(ctx, id, "cancel", by, func(j *Job) (bool, error) {
		switch {
		case j.State == JobCancelled:
			return false, nil
		case j.State.Ended():
			return false, &JobStateError{j.ID, j.State, "cancel"}
		}
		if j.State = JobCancelled; j.reported() && !j.claimed(s.now()) {
			j.Finished, j.ClaimedBy, j.ClaimedUntil = s.millis(), "", time.Time{}
		}
		return true, nil
	})
}

// reported tells whether the report of a job says all of what it did so far.
func (j *Job) reported() bool {
	return j.Started.IsZero() || len(j.ids) == 0 && (!j.follows() || j.cursor.Followed >= j.batch)
}

// follows tells whether the job learns what becomes of its letters.
func (j *Job) follows() bool { return j.Action == ActionReplay && j.Follow >= 0 }

// claimed tells whether a runner has the job.
func (j *Job) claimed(now time.Time) bool { return j.ClaimedBy != "" && now.Before(j.ClaimedUntil) }

// steer makes an operator's change of a job, with a line in its history.
func (s *Store) steer(ctx context.Context, id gocql.UUID, what string, by Actor, plan func(*Job) (bool, error)) error {
	if by.Name == "" {
		return fmt.Errorf("%s job %s: the actor has no name", what, id)
	}
	_, err := s.changeJob(ctx, id, what, func(j *Job) (bool, error) {
		change, err := plan(j)
		if change && err == nil {
			j.History = append(j.History, JobChange{At: s.millis(), What: what, By: by.Name, Why: by.Reason})
		}
		return change, err
	})
	return err
}

// changeJob decides a change of a job by one lightweight transaction and returns
// the job after it. plan changes the job that it is given and says whether there
// is anything to change; it is called again when somebody else was first, so it
// must say what is wanted, not what to add.
func (s *Store) changeJob(ctx context.Context, id gocql.UUID, what string, plan func(*Job) (bool, error)) (*Job, error) {
	cons, mine := s.cons, make(map[gocql.UUID]bool)
	for a := s.again(ctx); ; {
		j, err := s.readJob(ctx, id, cons)
		if err == nil && mine[j.writtenBy] {
			return s.unlistJob(ctx, j), nil // it was decided, and the answer lost
		}
		var change bool
		if err == nil {
			lines := len(j.History)
			if change, err = plan(j); err == nil && !change {
				return s.unlistJob(ctx, j), nil
			}
			if err == nil {
				by := gocql.UUIDFromTime(s.now())
				var applied bool
				if applied, err = s.updateJob(ctx, j, by, j.History[lines:]); applied {
					return s.unlistJob(ctx, j), nil
				}
				if err != nil {
					mine[by] = true
				}
			}
		}
		switch final := cons == s.serial; {
		case (errors.Is(err, ErrRefused) || errors.Is(err, ErrNoJob)) && !final:
			// What was seen at a weaker level may be out of date.
		case errors.Is(err, ErrRefused), errors.Is(err, ErrNoJob), hopeless(err):
			return nil, err
		case !a.Pause():
			if err == nil {
				err = fmt.Errorf("%s job %s: others changed it all the time", what, id)
			}
			return nil, err
		}
		cons = s.serial
	}
}

// monthOf is the bucket of a job in the list of all.
func monthOf(at time.Time) time.Time {
	at = at.UTC()
	return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// openJobs is the bucket of the jobs that are not finished.
var openJobs = time.Unix(0, 0).UTC()

// allJobs is the shelf of which dead_letter_buckets knows the months.
var allJobs = shelf{kindJob, ""}
