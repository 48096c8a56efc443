package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// Archive is where jobs put letters away, and bring them back from; package
// dlq/archive has one.
//
// Purge and Restore act on letters together and do each once for a job, however
// often they are called. The first error is of each letter, in the order of
// events: nil, or why it was left as it is, a *RefusedError or *VersionError, or
// one with ErrNotFound or ErrNoCopy in its chain. The other one ended it all: what
// was done until then stays done. One of the archive itself, rather than of the
// database, has ErrArchive in its chain.
type Archive interface {
	// Purge writes whole letters to the archive and purges them.
	Purge(ctx context.Context, events []gocql.UUID, force bool, by Actor) ([]error, error)
	// Restore brings archived letters back.
	Restore(ctx context.Context, events []gocql.UUID, by Actor) ([]error, error)
	// Sweep moves what is older than its retention to the archive, and removes
	// there what has expired. ErrBusy says that somebody else does so just now.
	Sweep(ctx context.Context) (Swept, error)
}

var (
	// ErrArchive is in the chain of errors of the archive itself.
	ErrArchive = errors.New("the archive")
	// ErrNoCopy says that a purged letter cannot be restored: it went to no archive,
	// or its object has expired or is damaged.
	ErrNoCopy = errors.New("there is no copy of the letter")
	// ErrBusy says that another process sweeps.
	ErrBusy = errors.New("another process sweeps the dead letters just now")
)

// Swept is what a sweep did.
type Swept struct {
	// Archived counts letters by what they were before they were moved.
	Archived map[Status]int
	// Held are failed letters that stay because others are parked behind them, and
	// Changed those that somebody changed meanwhile.
	Held, Changed int
	// Objects were written, and Expired ones removed; Forgotten are outlines.
	Objects, Expired, Forgotten int
}

// acted is how a job counts the letters of a sweep.
func (s *Swept) acted() (a acted) {
	for _, n := range s.Archived {
		a.Changed += n
	}
	for why, n := range map[string]int{"held": s.Held, "changed meanwhile": s.Changed} {
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
	if j.Action == ActionPurge {
		left, err = w.cfg.Archive.Purge(ctx, j.ids, j.Force, j.by())
	} else {
		left, err = w.cfg.Archive.Restore(ctx, j.ids, j.by())
	}
	if err != nil {
		return fmt.Errorf("%s %d dead letters: %w", j.Action, len(j.ids), err)
	}
	for i, event := range j.ids {
		r, err := w.store.resultOf(ctx, j, event, left[i], false)
		if err != nil {
			return err
		}
		w.acted(results, i, r)
	}
	return nil
}

// sweepAgain is how long a job waits while another process sweeps.
const sweepAgain = 2 * time.Second

// sweep runs a job that is a sweep. After a crash it is made again, and finds less
// to do.
func (w *worker) sweep(ctx context.Context) error {
	var s Swept
	err := w.during(ctx, func(ctx context.Context) (err error) {
		if s, err = w.cfg.Archive.Sweep(ctx); errors.Is(err, ErrBusy) {
			return errors.Join(err, retry.Wait(ctx, sweepAgain))
		}
		return err
	})
	switch {
	case errors.Is(err, ErrBusy) && ctx.Err() == nil:
		return nil // again
	case err != nil || w.j.State != JobRunning:
		return err
	}
	did := s.acted()
	if err := w.save(ctx, func(j *Job) {
		j.cursor.Acted, j.cursor.End = did, true
		j.Progress.Total = did.Changed + sumOf(did.Skipped)
		j.History = append(j.History, JobChange{At: w.store.millis(), What: "sweep", By: w.cfg.Owner, Why: fmt.Sprintf(
			"objects written: %d, expired: %d; outlines forgotten: %d", s.Objects, s.Expired, s.Forgotten)})
	}); err != nil {
		return err
	}
	w.metrics.acted(w.j.Action, did)
	return w.finish(ctx, JobDone, nil)
}

func sumOf(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

// pause lets the job wait for somebody to resume it.
func (w *worker) pause(ctx context.Context, why string) error {
	return w.save(ctx, func(j *Job) {
		if j.State == JobRunning {
			j.State, j.Error = JobPaused, why
			j.History = append(j.History, JobChange{At: w.store.millis(), What: "pause", By: w.cfg.Owner, Why: why})
		}
	})
}
