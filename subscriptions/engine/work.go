package engine

import (
	"errors"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

const (
	// workAtOnce is the number of messages of one round of work.
	workAtOnce = 200
	// parallel is the number of records that are read, and of dead letters that are
	// written, concurrently.
	parallel = 8
)

// work does what the queue needs in the database until there is nothing more.
func (p *partition) work() {
	for failures := 0; ; {
		p.mu.Lock()
		var w queue.Work
		epoch := p.mu.epoch
		if !p.mu.closed {
			w = p.mu.q.Work(workAtOnce)
		}
		if p.mu.closed || w.Empty() && !p.mu.q.HasWork() {
			p.mu.working = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		err := p.do(w, epoch)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		if p.ctx.Err() == nil {
			p.g.log.Warn("failed to store the state of messages; retrying", "topic", p.topic, "partition", p.number, "err", err)
			p.g.failed(err)
		}
		_ = retry.Wait(p.ctx, retry.Backoff(100*time.Millisecond, 5*time.Second, failures))
	}
}

// do does one round of work and reports it.
func (p *partition) do(w queue.Work, epoch int64) error {
	var failed struct {
		sync.Mutex
		err error
	}
	report := func(err error, f func(*queue.Queue)) {
		if errors.Is(err, store.ErrFenced) {
			p.g.fenced(p)
			return
		}
		p.locked(f)
		failed.Lock()
		defer failed.Unlock()
		failed.err = errors.Join(failed.err, err)
	}
	st := p.g.e.cfg.Store
	var all sync.WaitGroup
	all.Go(func() { // one after the other, so that they are applied in this order
		if len(w.Save) > 0 {
			err := st.Save(p.ctx, p.id, epoch, storedOf(w.Save))
			report(err, func(q *queue.Queue) {
				for i := range w.Save {
					q.Saved(w.Save[i].Offset, err)
				}
			})
		}
		if len(w.Remove) > 0 {
			remove, err := p.resolve(w.Remove)
			if err != nil {
				failed.Lock()
				failed.err = errors.Join(failed.err, err)
				failed.Unlock()
			}
			w.Remove = remove
		}
		if len(w.Remove) > 0 {
			err := st.Remove(p.ctx, p.id, epoch, w.Remove)
			report(err, func(q *queue.Queue) {
				for _, offset := range w.Remove {
					q.Removed(offset, err)
				}
			})
		}
	})
	all.Go(func() {
		each(w.Load, func(offset int64) {
			rec, err := st.Record(p.ctx, p.id, offset)
			load := func(bad error) {
				var loaded queue.Record
				if err == nil {
					loaded = recordOf(rec)
					loaded.Undecidable = bad
				}
				report(err, func(q *queue.Queue) { q.Loaded(offset, loaded, err) })
			}
			var bad error
			if err == nil {
				_, bad = p.g.selects(cachedSchemas, rec)
			}
			if errors.Is(bad, registry.ErrUnavailable) { // nothing else waits for it
				go func() {
					if _, bad = p.selects(rec); p.ctx.Err() == nil {
						load(bad)
					}
				}()
				return
			}
			load(bad)
		})
	})
	all.Go(func() {
		each(w.DeadLetters, func(d queue.DeadLetter) {
			err := p.g.deadLetter(p.ctx, p, &d)
			report(err, func(q *queue.Queue) { q.DeadLettered(d.Offset, err) })
		})
	})
	all.Wait()
	return failed.err
}

// each calls f for all items, up to parallel at a time.
func each[T any](items []T, f func(T)) {
	slots := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for _, item := range items {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(item)
		})
	}
	all.Wait()
}

func storedOf(rows []queue.Row) []store.Stored {
	out := make([]store.Stored, len(rows))
	for i, r := range rows {
		state := store.StateDeferred
		switch {
		case r.Behind:
			state = store.StateBehind
		case r.Rejected:
			state = store.StateRejected
		case r.DeadLettering:
			state = store.StateDeadLettering
		}
		out[i] = store.Stored{
			Offset: r.Offset, Key: r.Key, State: state, Attempts: r.Attempts, NextAt: r.NextAt, FirstAt: r.FirstAt, Error: r.Error, Record: r.Record, DeadLetter: r.DeadLetter,
		}
	}
	return out
}
