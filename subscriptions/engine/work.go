package engine

import (
	"errors"
	"slices"
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
	// parallel is the number of dead letters that are written, and of partitions that are loaded
	// and handed over, concurrently.
	parallel = 8
	// readAtOnce is the number of records that are read concurrently: the records of a run of
	// stored messages.
	readAtOnce = 32
)

// work executes the requests of the queue to the database until there is nothing more.
func (p *partition) work() {
	for {
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
		if err := p.do(w, epoch); err != nil && p.ctx.Err() == nil {
			p.g.log.Warn("failed to store the state of messages; retrying", "topic", p.topic, "partition", p.number, "err", err)
			p.g.recordFailure(err)
		}
	}
}

// later reports the failure of an item after its own back-off, so that it delays no other one.
func (p *partition) later(offset int64, f func(*queue.Queue)) {
	p.mu.Lock()
	if p.mu.failures == nil {
		p.mu.failures = make(map[int64]int)
	}
	p.mu.failures[offset]++
	n := p.mu.failures[offset]
	p.mu.Unlock()
	go func() {
		if retry.Wait(p.ctx, retry.Backoff(100*time.Millisecond, 5*time.Second, n)) == nil {
			p.withQueue(f)
		}
	}()
}

// failing reports whether the last work of a message has failed.
func (p *partition) failing(offset int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.failures[offset] > 0
}

// do does one round of work and reports it.
func (p *partition) do(w queue.Work, epoch int64) error {
	var failed failures
	report := func(offset int64, err error, f func(*queue.Queue)) {
		switch {
		case errors.Is(err, store.ErrFenced):
			p.g.closeFenced(p)
		case err != nil:
			failed.add(err)
			p.later(offset, f)
		default:
			p.mu.Lock()
			delete(p.mu.failures, offset)
			p.mu.Unlock()
			p.withQueue(f)
		}
	}
	// alone does the work of an item that failed before: nothing else waits for it.
	alone := func(offset int64, f func()) bool {
		again := p.failing(offset)
		if again {
			go f()
		}
		return again
	}
	st := p.g.e.cfg.Store
	save := func(rows []queue.Row) {
		if len(rows) == 0 {
			return
		}
		err := st.Save(p.ctx, p.id, epoch, toStored(rows))
		for i := range rows {
			report(rows[i].Offset, err, func(q *queue.Queue) { q.ConfirmSave(rows[i].Offset, err) })
			if errors.Is(err, store.ErrFenced) {
				return
			}
		}
	}
	remove := func(offsets []int64) {
		if len(offsets) == 0 {
			return
		}
		err := st.Remove(p.ctx, p.id, epoch, offsets)
		for _, o := range offsets {
			report(o, err, func(q *queue.Queue) { q.ConfirmRemoval(o, err) })
			if errors.Is(err, store.ErrFenced) {
				return
			}
		}
	}
	var all sync.WaitGroup
	all.Go(func() { // one after the other, so that they are applied in this order
		save(slices.DeleteFunc(w.Save, func(r queue.Row) bool { return alone(r.Offset, func() { save([]queue.Row{r}) }) }))
		offsets, err := p.resolve(w.Remove)
		failed.add(err)
		remove(slices.DeleteFunc(offsets, func(o int64) bool { return alone(o, func() { remove([]int64{o}) }) }))
	})
	all.Go(func() {
		forEach(readAtOnce, w.Load, func(offset int64) {
			rec, err := st.Record(p.ctx, p.id, offset)
			load := func(bad error) {
				var loaded queue.Record
				if err == nil {
					loaded = newQueueRecord(rec)
					loaded.Undecidable = bad
				}
				report(offset, err, func(q *queue.Queue) { q.ConfirmLoad(offset, loaded, err) })
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
			write := func() {
				err := p.g.deadLetter(p.ctx, p, &d)
				report(d.Offset, err, func(q *queue.Queue) { q.DeadLettered(d.Offset, err) })
			}
			if !alone(d.Offset, write) {
				write()
			}
		})
	})
	all.Wait()
	failed.mu.Lock() // requests that run alone may still be in progress
	defer failed.mu.Unlock()
	return failed.err
}

// each calls f for all items, up to parallel at a time.
func each[T any](items []T, f func(T)) { forEach(parallel, items, f) }

// tryEach is each with the errors of f.
func tryEach[T any](items []T, f func(T) error) error {
	var errs failures
	each(items, func(item T) { errs.add(f(item)) })
	return errs.err
}

// failures joins the errors of concurrent work.
type failures struct {
	mu  sync.Mutex
	err error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = errors.Join(f.err, err)
}

// forEach calls f for all items, up to n at a time.
func forEach[T any](n int, items []T, f func(T)) {
	slots := make(chan struct{}, n)
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

func toStored(rows []queue.Row) []store.Stored {
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
			Offset: r.Offset, Key: r.Key, State: state, Attempts: r.Attempts, NextAt: r.NextAt, FirstAt: r.FirstAt, Error: r.Error, Record: r.Record, DeadLetter: r.DeadLetter, Edited: r.Edited,
		}
	}
	return out
}
