package schedule

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/scylla-outbox/scylla-outbox/internal/lease"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"golang.org/x/time/rate"
)

// Scheduler releases messages when they are due, in the order of their times.
//
// Each is released once, whatever dies in between and however many schedulers
// there are: a lightweight transaction decides between release and cancellation
// and fixes the write time of the outbox row, so whoever repeats the release
// writes the same row. After an outage all that is due goes out, the oldest
// first, at the configured rate.
type Scheduler struct {
	cfg     Config
	store   *Store
	metrics *metrics
	limiter *rate.Limiter
	room    chan struct{} // holds one for each message in memory

	mu         sync.Mutex
	pending    queue
	known      map[gocql.UUID]time.Time // in pending or being released
	leaseUntil time.Time
	sight      sight
	owed       owed
	complained map[string]time.Time
	wake       chan struct{}
}

// New returns a Scheduler. It starts nothing.
func New(cfg Config) (*Scheduler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{
		cfg: cfg, store: cfg.Store, metrics: m, limiter: rate.NewLimiter(rate.Limit(cfg.Rate), max(1, cfg.Rate/10)),
		room: make(chan struct{}, cfg.MaxPending), known: make(map[gocql.UUID]time.Time),
		complained: make(map[string]time.Time), wake: make(chan struct{}, 1),
	}
	if err := m.watch(cfg.Registerer, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Run works until ctx ends and returns nil. What is being released then is
// finished first.
func (s *Scheduler) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { s.keepLease(ctx) })
	all.Go(func() { s.dispatch(ctx) })
	var swept, far time.Time
	for {
		if s.working() {
			began := s.cfg.Now()
			w := window{began.Add(-nearPolls * s.cfg.Poll), began.Add(min(nearPolls*s.cfg.Poll, s.cfg.LookAhead))}
			full := began.Sub(swept) >= s.cfg.Sweep
			if full || began.Sub(far) >= s.cfg.LookAhead/2 {
				w, far = window{began.Add(-lookBack), began.Add(s.cfg.LookAhead)}, began
			}
			if full {
				w.from = began.Add(-MaxAhead - 30*24*time.Hour) // whatever waited for as long as anything can
			}
			asked := time.Now()
			err := s.look(ctx, began, w)
			if ctx.Err() == nil {
				s.looked(asked, full, err)
			}
			switch {
			case err != nil:
				swept, far = time.Time{}, time.Time{} // what came due meanwhile is looked for before anything counts as known
			case full:
				swept = began
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, errLeaseLost) {
				s.fail("look", "cannot look for due messages; trying again", err)
			}
		} else {
			swept, far = time.Time{}, time.Time{}
			s.unleased()
			s.forgetAll()
		}
		if retry.Wait(ctx, s.cfg.Poll) != nil {
			break
		}
	}
	all.Wait()
	s.leased(false) // whoever is next tells what is overdue
	s.forgetAll()
	return nil
}

// keepLease has the lease whenever it can. It counts from before the question.
func (s *Scheduler) keepLease(ctx context.Context) {
	l := &lease.Lease{Table: "schedule_leases", Name: "scheduler", Owner: s.cfg.Owner, TTL: s.cfg.Lease, Apply: s.store.change}
	for {
		began := time.Now()
		mine, err := l.Take(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			s.fail("lease", "cannot take the scheduler's lease; trying again", err)
		case mine:
			s.mu.Lock()
			s.leaseUntil = began.Add(s.cfg.Lease)
			s.mu.Unlock()
			s.leased(true)
		case err == nil:
			s.leased(false)
		}
		if retry.Wait(ctx, s.cfg.Lease/4) != nil {
			break
		}
	}
	s.mu.Lock()
	s.leaseUntil = time.Time{}
	s.mu.Unlock()
	if err := l.Leave(context.WithoutCancel(ctx)); err != nil {
		s.fail("unlease", "the next scheduler waits until the lease ends", err)
	}
}

// working says that this scheduler has the lease. It only saves work: a release
// is safe without.
func (s *Scheduler) working() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.leaseUntil)
}

// fail counts a failure and logs it, the same kind once a minute.
func (s *Scheduler) fail(kind, text string, err error) {
	s.metrics.failed.Inc()
	s.mu.Lock()
	again := time.Since(s.complained[kind]) < time.Minute
	if !again {
		s.complained[kind] = time.Now()
	}
	s.mu.Unlock()
	if !again {
		s.cfg.Logger.Warn(text, "err", err)
	}
}

// nearPolls is how many polls before and after now most looks reach: for what was
// stored since and is due almost at once. What is due later is found by the look,
// twice in LookAhead, that reaches as far as that; so what is in memory already
// is not read again and again.
const nearPolls = 4

// window are the times of the slots that a look reads, both inclusive.
type window struct{ from, until time.Time }

// look reads the slots of a window into memory. It waits while memory is full.
func (s *Scheduler) look(ctx context.Context, now time.Time, w window) error {
	from, until := w.from, w.until
	for {
		buckets, err := s.store.buckets(ctx, from, until, maxBuckets)
		if err != nil {
			return err
		}
		for _, b := range buckets {
			if err := s.lookInto(ctx, b, Position{DeliverAt: later(b, from)}, earlier(until, b.Add(bucketSize-time.Millisecond)), now); err != nil {
				return err
			}
		}
		if len(buckets) < maxBuckets {
			return nil
		}
		from = buckets[len(buckets)-1].Add(bucketSize)
	}
}

const (
	// lookBack is how long ago a message may have become due that is still looked
	// for twice in LookAhead, and not with the next sweep: its writer's clock was behind.
	lookBack   = 10 * time.Second
	maxBuckets = 5000
)

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

var errLeaseLost = errors.New("another scheduler has the lease")

// lookInto reads the slots of one bucket, and closes it if nothing can come any more.
func (s *Scheduler) lookInto(ctx context.Context, bucket time.Time, after Position, until, now time.Time) error {
	found := 0
	for first := after; ; {
		slots, more, err := s.store.slotsOf(ctx, bucket, after, until, max(1, min(s.cfg.MaxPending/shards, 500)))
		if err != nil {
			return err
		}
		found += len(slots)
		for _, x := range slots {
			if err := s.add(ctx, x); err != nil {
				return err
			}
		}
		if !more {
			// What was written that long ago would have been seen.
			if at := now.Add(-CloseAfter); found == 0 && first.DeliverAt.Equal(bucket) && at.After(bucket.Add(bucketSize)) {
				return s.store.closeBucket(ctx, bucket, at)
			}
			return nil
		}
		after = slots[len(slots)-1].position()
	}
}

// add takes a slot into memory unless its message is there. It waits for room.
func (s *Scheduler) add(ctx context.Context, x slot) error {
	s.mu.Lock()
	at, known := s.known[x.id]
	hastened := known && x.at.Before(at)
	if hastened {
		s.known[x.id] = x.at
		s.pending.hasten(x)
	}
	s.mu.Unlock()
	if hastened {
		s.stir()
	}
	if known {
		return nil
	}
	select {
	case s.room <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !s.working() {
		<-s.room
		return errLeaseLost
	}
	s.mu.Lock()
	s.known[x.id] = x.at
	s.pending.push(x)
	s.metrics.pending.Set(float64(len(s.pending)))
	s.mu.Unlock()
	s.stir()
	return nil
}

// stir lets dispatch look at what is first.
func (s *Scheduler) stir() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// done lets go of a message: it is out, or is to be looked at again.
func (s *Scheduler) done(id gocql.UUID) {
	s.mu.Lock()
	delete(s.known, id)
	s.mu.Unlock()
	<-s.room
}

// forgetAll lets go of all that is not being released.
func (s *Scheduler) forgetAll() {
	s.mu.Lock()
	n := len(s.pending)
	for _, x := range s.pending {
		delete(s.known, x.id)
		s.oweLocked(x.id, x.at)
	}
	s.pending = nil
	s.metrics.pending.Set(0)
	s.mu.Unlock()
	for range n {
		<-s.room
	}
}

// next takes the first message if it is due; otherwise wait is how long to wait.
func (s *Scheduler) next(now time.Time) (x slot, wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return slot{}, time.Hour, false
	}
	if wait = s.pending[0].at.Sub(now); wait > 0 {
		return slot{}, wait, false
	}
	x = s.pending.pop()
	s.metrics.pending.Set(float64(len(s.pending)))
	return x, 0, true
}

// dispatch releases what is due, in order, Concurrency at once.
func (s *Scheduler) dispatch(ctx context.Context) {
	var busy sync.WaitGroup
	defer busy.Wait()
	slots := make(chan struct{}, s.cfg.Concurrency)
	for {
		x, wait, ok := s.next(s.cfg.Now())
		if !ok {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-s.wake:
				t.Stop()
			case <-ctx.Done():
				t.Stop()
				return
			}
			continue
		}
		if s.limiter.Wait(ctx) != nil {
			s.done(x.id)
			return
		}
		slots <- struct{}{} // a release ends by itself, in the time of its statements
		busy.Go(func() {
			defer func() { <-slots; s.done(x.id) }()
			if !s.working() {
				s.owe(x.id, x.at)
				return
			}
			if err := s.release(context.WithoutCancel(ctx), x); err != nil {
				s.owe(x.id, x.at)
				s.fail("release", "cannot release a message; trying again", err)
				return
			}
			s.paid(x.id)
		})
	}
}
