package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// Archive stores dead letters outside the database and restores them; package
// dlq/archive implements it.
//
// Purge and Restore change several dead letters, each at most once for a job however
// often they are called. The slice of errors is in the order of events: nil, or the
// reason why the dead letter was not changed, a *RefusedError or *VersionError, or one
// with ErrNotFound or ErrNoCopy in its chain. The second error ended the call; the
// changes before it remain. An error of the archive itself, rather than of the
// database, has ErrArchive in its chain.
type Archive interface {
	// Purge writes copies of dead letters to the archive and purges them.
	Purge(ctx context.Context, events []gocql.UUID, force bool, by dlq.Actor) ([]error, error)
	// Restore restores archived dead letters.
	Restore(ctx context.Context, events []gocql.UUID, by dlq.Actor) ([]error, error)
	// Sweep moves dead letters that are older than their retention to the archive, and
	// removes expired objects. ErrBusy reports that another process sweeps.
	Sweep(ctx context.Context) (dlq.Swept, error)
}

// countSwept returns the counts of a sweep as a job reports them.
func countSwept(s *dlq.Swept) (a acted) {
	for _, n := range s.Archived {
		a.Changed += n
	}
	for why, n := range map[string]int{"held": s.Held, "changed concurrently": s.Changed} {
		if n > 0 {
			a = a.plus(acted{Skipped: map[string]int{why: n}})
		}
	}
	return a
}

// actTogether does the job's action to the current batch as a whole. The rate
// holds over batches, not within one.
func (w *worker) actTogether(ctx context.Context, j *Job, results []result) error {
	for range j.ids {
		if err := w.limit.Wait(ctx); err != nil {
			return err
		}
	}
	var left []error
	var err error
	if j.Action == dlq.ActionPurge {
		left, err = w.cfg.Archive.Purge(ctx, j.ids, j.Force, j.by())
	} else {
		left, err = w.cfg.Archive.Restore(ctx, j.ids, j.by())
	}
	if err != nil {
		return fmt.Errorf("%s %d dead letters: %w", j.Action, len(j.ids), err)
	}
	for i, event := range j.ids {
		r, err := w.store.newResult(ctx, j, event, left[i], false)
		if err != nil {
			return err
		}
		w.countActed(results, i, r)
	}
	return nil
}

// sweepAgain is the delay of a job while another process sweeps.
const sweepAgain = 2 * time.Second

// sweep runs a job that is a sweep. After a crash it is repeated, and finds less to do.
func (w *worker) sweep(ctx context.Context) error {
	var s dlq.Swept
	err := w.during(ctx, func(ctx context.Context) (err error) {
		if s, err = w.cfg.Archive.Sweep(ctx); errors.Is(err, dlq.ErrBusy) {
			return errors.Join(err, retry.Wait(ctx, sweepAgain))
		}
		return err
	})
	switch {
	case errors.Is(err, dlq.ErrBusy) && ctx.Err() == nil:
		return nil // retry
	case err != nil || w.j.State != Running:
		return err
	}
	did := countSwept(&s)
	if err := w.save(ctx, func(j *Job) {
		j.cursor.Acted, j.cursor.End = did, true
		j.Progress.Total = did.Changed + sumCounts(did.Skipped)
		j.History = append(j.History, JobChange{At: w.store.db.Millis(), What: "sweep", By: w.cfg.Owner, Why: fmt.Sprintf(
			"objects written: %d, expired: %d; outlines forgotten: %d", len(s.Objects), len(s.Expired), s.Forgotten)})
	}); err != nil {
		return err
	}
	w.metrics.countActed(w.j.Action, did)
	return w.finish(ctx, Done, nil)
}

func sumCounts(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

// pause pauses the job until an operator resumes it.
func (w *worker) pause(ctx context.Context, why string) error {
	return w.save(ctx, func(j *Job) {
		if j.State == Running {
			j.State, j.Error = Paused, why
			j.History = append(j.History, JobChange{At: w.store.db.Millis(), What: "pause", By: w.cfg.Owner, Why: why})
		}
	})
}
