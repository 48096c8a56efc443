package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// worker runs a job that its runner has claimed.
//
// A batch is saved in the job's row before the worker acts on it, and counted in the
// transaction that saves the next one. So after a crash a runner continues with the
// same batch, determines which dead letters were changed, and counts each once.
type worker struct {
	*Runner
	id    gocql.UUID
	j     *Job // as it was saved last
	limit *rate.Limiter

	batches    map[int64][]actedOn // the ones that are followed
	lastFollow time.Time

	// mu guards the counts that are not in j.cursor yet, and the assignment of j.
	mu struct {
		sync.Mutex
		acting acted    // of the current batch
		seen   followed // of the batches that are followed
		// reading is the progress of a redelivery before its first batch; nil without news.
		reading *Reading
	}
}

// canary are the sizes of the first batches of a job with a canary.
var canary = []int{1, 2, 5, 20}

// followBatches limits the batches that are followed concurrently.
const followBatches = 50

// followEvery is the least interval between two calls of follow.
const followEvery = time.Second

// firstSave is the part of RunnerConfig.Poll after which the progress of some work is saved first:
// who began the job is looking.
const firstSave = 4

// run continues the job until it is finished, paused or lost, or until an error that
// can be retried.
func (w *worker) run(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		switch cancelled := w.j.State == Cancelled; {
		case w.j.State == Paused, !w.j.Finished.IsZero():
			return nil
		case w.j.Action == dlq.ActionArchive && !cancelled:
			err = w.sweep(ctx)
		case w.j.needsPreparation() && !cancelled:
			err = w.prepare(ctx)
		case len(w.j.ids) > 0:
			err = w.batch(ctx, cancelled)
		case w.followDue():
			err = w.follow(ctx)
		case !cancelled && w.mayPlan():
			err = w.plan(ctx)
		case w.followedAll():
			return w.finish(ctx, Done, nil)
		default:
			if err = w.follow(ctx); err == nil && !w.followedAll() && !w.mayPlan() {
				err = w.during(ctx, func(ctx context.Context) error { return retry.Wait(ctx, w.cfg.Poll) })
			}
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return err
		case errors.Is(err, dlq.ErrArchive), errors.Is(err, ErrTopics):
			return w.pause(ctx, err.Error()+"; resume retries it")
		case db.Permanent(err):
			return w.finish(ctx, Failed, err)
		default:
			return err
		}
	}
}

// complete returns the number of complete batches.
func (w *worker) complete() int64 {
	if len(w.j.ids) > 0 {
		return w.j.batch - 1
	}
	return w.j.batch
}

func (w *worker) followedAll() bool { return !w.j.follows() || w.j.cursor.Followed >= w.complete() }

// followDue reports whether it is time to follow replays before the next batch.
func (w *worker) followDue() bool {
	return !w.followedAll() && time.Since(w.lastFollow) >= max(w.cfg.Poll, followEvery)
}

// mayPlan reports whether the next batch may begin before the results of the previous
// ones are known.
func (w *worker) mayPlan() bool {
	if w.j.cursor.End || w.j.State != Running {
		return false
	}
	if w.j.Canary && w.j.cursor.Canary <= len(canary) {
		return w.followedAll()
	}
	return !w.j.follows() || w.complete()-w.j.cursor.Followed < followBatches
}

// save changes the job's row, if it is still this runner's.
func (w *worker) save(ctx context.Context, f func(*Job)) error {
	j, err := w.store.changeJob(ctx, w.id, "run", func(j *Job) (bool, error) {
		if j.ClaimedBy != w.cfg.Owner {
			return false, errLostJob
		}
		j.ClaimedUntil = w.store.db.Millis().Add(w.cfg.Lease)
		if j.State == Queued { // paused and resumed, before it was seen that it was paused
			j.State = Running
		}
		if f != nil {
			f(j)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.mu.reading != nil {
			j.Progress.Reading = w.mu.reading
		}
		j.Progress = j.progress(j.cursor.Acted.plus(w.mu.acting), j.cursor.Known.plus(w.mu.seen))
		return true, nil
	})
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.j = j
	}
	return err
}

// errStopActing ends the current work because the job was paused or cancelled.
var errStopActing = errors.New("the job was paused or cancelled")

// during runs f. Concurrently it renews the claim, saves the progress, and checks
// whether the job was paused or cancelled: then it cancels f's context, and w.j has the
// new state.
func (w *worker) during(ctx context.Context, f func(context.Context) error) error {
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	state, until := w.j.State, w.j.ClaimedUntil
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(w.cfg.Poll / firstSave)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-inner.Done():
				return
			case <-tick.C:
				tick.Reset(w.cfg.Poll)
			}
			err := w.save(inner, nil)
			switch {
			case errors.Is(err, errLostJob), errors.Is(err, ErrNoJob):
				stop(err)
			case err == nil:
				w.mu.Lock()
				until = w.j.ClaimedUntil
				if w.j.State != state {
					stop(errStopActing)
				}
				w.mu.Unlock()
			case !w.store.db.Clock.Now().Before(until):
				stop(errLostJob)
			}
		}
	})
	err := f(inner)
	close(done)
	stop(nil)
	wg.Wait()
	switch cause := context.Cause(inner); {
	case errors.Is(cause, errStopActing):
		return nil
	case errors.Is(cause, errLostJob), errors.Is(cause, ErrNoJob):
		return cause
	}
	return err
}

// plan writes down the next batch.
func (w *worker) plan(ctx context.Context) error {
	if w.j.Progress.Total == 0 && len(w.j.IDs) == 0 {
		total, j := 0, w.j
		if err := w.during(ctx, func(ctx context.Context) (err error) {
			total, err = w.store.countTotal(ctx, j)
			return err
		}); err != nil || w.j.State != Running {
			return err
		}
		if err := w.save(ctx, func(j *Job) { j.Progress.Total = total }); err != nil || w.j.State != Running {
			return err
		}
	}
	size := w.j.BatchSize
	if w.j.Canary && w.j.cursor.Canary < len(canary) {
		size = min(size, canary[w.j.cursor.Canary])
	}
	if w.j.Limit > 0 {
		size = min(size, w.j.Limit-w.j.cursor.At)
	}
	var ids []gocql.UUID
	after := w.j.cursor.After
	if len(w.j.IDs) > 0 {
		from := min(w.j.cursor.At, len(w.j.IDs))
		ids = w.j.IDs[from:min(from+size, len(w.j.IDs))]
	} else if size > 0 {
		f := w.j.Filter
		if w.j.cursor.At > 0 {
			f.After = after
		}
		j := w.j // the listing may take long
		if err := w.during(ctx, func(ctx context.Context) error {
			return w.store.dead.List(ctx, f, func(l *dlq.DeadLetter) error {
				after = l.Position()
				if !j.Means(l) {
					return nil
				}
				ids = append(ids, l.EventID)
				if len(ids) == size {
					return dlq.ErrStop
				}
				return nil
			})
		}); err != nil || w.j.State != Running {
			return err
		}
	}
	return w.save(ctx, func(j *Job) {
		if j.State != Running {
			return // paused or cancelled: the batch is planned again after a resume
		}
		if len(ids) < size || size == 0 {
			j.cursor.End = true
		}
		if len(ids) == 0 {
			return
		}
		j.ids = ids
		j.batch = w.complete() + 1
		j.cursor.After = after
		j.cursor.At = w.j.cursor.At + len(ids)
		j.cursor.Canary = w.j.cursor.Canary + 1
	})
}

// countTotal counts the dead letters of the job.
func (s *Store) countTotal(ctx context.Context, j *Job) (n int, err error) {
	err = s.dead.List(ctx, j.Filter, func(l *dlq.DeadLetter) error {
		if !j.Means(l) {
			return nil
		}
		if n++; j.Limit > 0 && n == j.Limit {
			return dlq.ErrStop
		}
		return nil
	})
	return n, err
}

// batch acts on the current batch and counts it. For a cancelled job it only determines
// the results.
func (w *worker) batch(ctx context.Context, look bool) error {
	j := w.j
	before, err := w.store.dead.ReadMany(ctx, j.ids)
	if err != nil {
		return err
	}
	results := make([]result, len(j.ids))
	err = w.during(ctx, func(ctx context.Context) error {
		if !look && j.needsArchive() {
			return w.actTogether(ctx, j, results)
		}
		workers := w.cfg.Concurrency
		if j.InOrder {
			workers = 1
		}
		return each(ctx, workers, len(j.ids), func(ctx context.Context, i int) error {
			if !look {
				if err := w.limit.Wait(ctx); err != nil {
					return err
				}
			}
			r, err := w.store.act(ctx, j, j.ids[i], look)
			if err != nil {
				return fmt.Errorf("%s dead letter %s: %w", j.Action, j.ids[i], err)
			}
			r.class = before[r.event].ErrorClass
			w.countActed(results, i, r)
			return nil
		})
	})
	if err != nil || !look && w.j.State != Running {
		w.forget()
		return err
	}
	if err := w.store.keepResults(ctx, j, results); err != nil {
		w.forget()
		return err
	}
	w.forget()
	did := count(results)
	err = w.save(ctx, func(now *Job) {
		if now.batch != j.batch || len(now.ids) == 0 {
			return // counted already, and the response was lost
		}
		now.ids = nil
		now.cursor.Acted = now.cursor.Acted.plus(did)
	})
	if err == nil {
		w.metrics.countActed(j.Action, did)
	}
	return err
}

// countActed counts the result of one dead letter of the current batch.
func (w *worker) countActed(results []result, i int, r result) {
	results[i] = r
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.acting = w.mu.acting.plus(count(results[i : i+1]))
}

// forget resets the counts of the current batch, which is counted as a whole or
// repeated.
func (w *worker) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.acting = acted{}
}

// each calls f for 0 to n-1, by so many workers, until one fails.
func each(ctx context.Context, workers, n int, f func(context.Context, int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := range next {
				if ctx.Err() != nil {
					return
				}
				if err := f(ctx, i); err != nil {
					stop(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// follow determines the results of replays and saves them.
func (w *worker) follow(ctx context.Context) error {
	w.lastFollow = time.Now()
	last := min(w.complete(), w.j.cursor.Followed+followBatches)
	before, at := w.j.cursor.Known, w.j.cursor.Followed
	known := before
	var seen followed
	var same string
	var failing []gocql.UUID
	for batch := at + 1; batch <= last; batch++ {
		deadLetters, ok := w.batches[batch]
		if !ok {
			var err error
			if deadLetters, err = w.store.readChanged(ctx, w.id, batch); err != nil {
				return err
			}
			w.batches[batch] = deadLetters
		}
		if err := w.store.learn(ctx, deadLetters); err != nil {
			return err
		}
		for _, l := range deadLetters {
			if batch > w.j.cursor.Warned && l.result.failed != "" && l.result.failed == l.class {
				same, failing = l.class, append(failing, l.event)
			}
		}
		f, waiting := countResults(deadLetters)
		late := len(deadLetters) > 0 && w.store.db.Clock.Now().Sub(deadLetters[0].at) > w.j.Follow
		if batch == at+1 && (waiting == 0 || late) {
			at, known = batch, known.plus(f)
		} else {
			seen = seen.plus(f)
		}
	}
	err := w.save(ctx, func(j *Job) {
		w.mu.Lock()
		w.mu.seen = seen
		w.mu.Unlock()
		j.cursor.Followed, j.cursor.Known = at, known
		if same != "" && j.Canary && j.State == Running && !j.cursor.End {
			j.State, j.cursor.Warned, j.cursor.Failed = Paused, last, failing
			j.Error = "canary: dead letters failed again with " + same + "; resume continues, cancel ends the job"
			j.History = append(j.History, JobChange{At: w.store.db.Millis(), What: "pause", By: "canary", Why: "failed again with " + same})
		}
	})
	if err == nil {
		w.metrics.countReplays(w.j.Action, before, known)
		for batch := range w.batches {
			if batch <= at {
				delete(w.batches, batch)
			}
		}
	}
	return err
}

// finish makes the job's report final.
func (w *worker) finish(ctx context.Context, state State, why error) error {
	err := w.save(ctx, func(j *Job) {
		if j.State == Paused {
			return // at the last moment
		}
		if !j.State.Ended() {
			j.State = state
		}
		if why != nil {
			j.Error = why.Error()
		}
		j.Finished, j.ClaimedBy, j.ClaimedUntil = w.store.db.Millis(), "", time.Time{}
	})
	if err == nil && !w.j.Finished.IsZero() {
		w.metrics.countEnded(w.j)
	}
	return err
}

// giveBack releases the claim on the job; if that fails, the claim expires.
func (w *worker) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.store.db.Timeout)
	defer cancel()
	j, err := w.store.changeJob(ctx, w.id, "give back", func(j *Job) (bool, error) {
		if j.ClaimedBy != w.cfg.Owner {
			return false, nil
		}
		j.ClaimedBy, j.ClaimedUntil = "", time.Time{}
		return true, nil
	})
	if err != nil {
		w.log.Debug("failed to release a job; its claim expires", "job", w.id, "err", err)
		return
	}
	w.j = j
}
