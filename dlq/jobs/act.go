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

// by returns the actor of the job's changes.
func (j *Job) by() dlq.Actor { return dlq.Actor{Name: j.Actor.Name, Reason: j.Actor.Reason, Job: j.ID} }

// do applies the job's action to one dead letter.
func (s *Store) do(ctx context.Context, j *Job, event gocql.UUID) error {
	switch j.Action {
	case dlq.ActionReplay:
		return s.dead.Replay(ctx, event, j.by())
	case dlq.ActionDiscard:
		return s.dead.Discard(ctx, event, j.by())
	case dlq.ActionUnblock:
		return s.dead.Unblock(ctx, event, j.by())
	case dlq.ActionResolve:
		return s.dead.ResolveByHand(ctx, event, j.by())
	case dlq.ActionReopen:
		return s.dead.Reopen(ctx, event, j.by())
	case dlq.ActionRedirect:
		return s.dead.Redirect(ctx, event, j.Topic, j.by())
	case dlq.ActionSuspend:
		return s.dead.Suspend(ctx, event, j.by())
	case dlq.ActionSet:
		return s.dead.Set(ctx, event, *j.Set, j.by())
	case dlq.ActionPurge:
		return s.dead.Purge(ctx, event, dlq.Purge{Force: j.Force}, j.by())
	}
	return fmt.Errorf("%s: no action of a single dead letter", j.Action)
}

// result is the effect of a job on a dead letter.
type result struct {
	event   gocql.UUID
	version int64  // after the change; 0 if it was skipped
	class   string // its error class before
	skipped string // why it was passed over
}

// act applies the job's action to a dead letter, at most once however often it is
// called. With look it only determines whether the action was applied. A dead letter
// that was neither changed nor skipped has no version and no reason.
func (s *Store) act(ctx context.Context, j *Job, event gocql.UUID, look bool) (result, error) {
	if look {
		return s.newResult(ctx, j, event, nil, true)
	}
	return s.newResult(ctx, j, event, s.do(ctx, j, event), false)
}

// newResult returns the result of an action that returned err.
func (s *Store) newResult(ctx context.Context, j *Job, event gocql.UUID, err error, look bool) (result, error) {
	r := result{event: event}
	var refused *dlq.RefusedError
	var version *dlq.VersionError
	switch {
	case errors.Is(err, dlq.ErrNotFound):
		r.skipped = "missing"
		return r, nil
	case errors.Is(err, dlq.ErrNoCopy):
		r.skipped = "no copy"
		return r, nil
	case errors.Is(err, dlq.ErrInvalidEdit):
		r.skipped = "not a valid event"
		return r, nil
	case errors.As(err, &version):
		r.skipped = "changed concurrently"
		return r, nil
	case errors.As(err, &refused) && refused.Status == dlq.Processing:
		r.skipped = "claimed"
		return r, nil
	case errors.As(err, &refused):
		r.skipped = string(refused.Status)
		return r, nil
	case err != nil:
		return r, err
	}
	r.version, err = s.dead.ChangedBy(ctx, event, j.ID)
	if errors.Is(err, dlq.ErrNotFound) {
		err = nil
	}
	if err == nil && r.version == 0 && !look {
		r.skipped = "already in that state"
	}
	return r, err
}

// count sums the results.
func count(results []result) (a acted) {
	for _, r := range results {
		switch {
		case r.version > 0:
			a.Changed++
		case r.skipped != "":
			a = a.plus(acted{Skipped: map[string]int{r.skipped: 1}})
		}
	}
	return a
}

// keepResults stores the changes of a batch. It may be repeated.
func (s *Store) keepResults(ctx context.Context, j *Job, results []result) error {
	at := s.db.Millis()
	for some := range slices.Chunk(results, chunk) {
		b := s.db.Batch()
		for _, r := range some {
			if r.version > 0 {
				b.Query(s.stmt.acted, j.ID, j.batch, r.event, r.version, r.class, at)
			}
		}
		if b.Size() == 0 {
			continue
		}
		if err := s.db.Execute(ctx, b); err != nil {
			return fmt.Errorf("store the changes of job %s in batch %d: %w", j.ID, j.batch, err)
		}
	}
	return nil
}

// actedOn is a dead letter that a job replayed.
type actedOn struct {
	event   gocql.UUID
	version int64
	class   string
	at      time.Time
	result  replayResult
}

// replayResult is the result of a replay.
type replayResult struct {
	known     bool
	replayed  bool
	overtaken bool
	failed    string // the error class
}

// readChanged returns the dead letters that a batch of a job changed.
func (s *Store) readChanged(ctx context.Context, job gocql.UUID, batch int64) ([]actedOn, error) {
	out, err := db.Rows(ctx, s.db, func(a *actedOn) []any { return []any{&a.event, &a.version, &a.class, &a.at} }, s.stmt.actedOn, job, batch)
	if err != nil {
		return nil, fmt.Errorf("read the changes of job %s in batch %d: %w", job, batch, err)
	}
	return out, nil
}

// learn determines the results of replays since a job requested them.
func (s *Store) learn(ctx context.Context, deadLetters []actedOn) error {
	var ids []gocql.UUID
	for _, l := range deadLetters {
		if !l.result.known {
			ids = append(ids, l.event)
		}
	}
	now, err := s.dead.ReadMany(ctx, ids)
	if err != nil {
		return err
	}
	for i := range deadLetters {
		l := &deadLetters[i]
		if stored, ok := now[l.event]; l.result.known || ok && stored.Version == l.version {
			continue
		}
		lines, err := s.dead.History(ctx, l.event)
		if errors.Is(err, dlq.ErrNotFound) { // retention was faster
			l.result = replayResult{known: true, overtaken: true}
			continue
		}
		if err != nil {
			return err
		}
		l.result = newReplayResult(lines, l.version)
	}
	return nil
}

// newReplayResult returns the result of a replay from the history after a version.
func newReplayResult(lines []dlq.Change, version int64) replayResult {
	for _, c := range lines {
		if c.Version <= version {
			continue
		}
		switch c.Action {
		case dlq.ActionSettle:
			return replayResult{known: true, replayed: true}
		case dlq.ActionFail:
			return replayResult{known: true, failed: c.Class}
		case dlq.ActionDiscard, dlq.ActionResolve, dlq.ActionSuspend, dlq.ActionUnblock, dlq.ActionArchive, dlq.ActionPurge:
			return replayResult{known: true, overtaken: true}
		}
	}
	return replayResult{}
}

// countResults sums the results of replays.
func countResults(deadLetters []actedOn) (f followed, waiting int) {
	for _, l := range deadLetters {
		switch {
		case !l.result.known:
			waiting++
		case l.result.replayed:
			f.Replayed++
		case l.result.overtaken:
			f.Overtaken++
		default:
			f = f.plus(followed{Failed: map[string]int{l.result.failed: 1}})
		}
	}
	return f, waiting
}
