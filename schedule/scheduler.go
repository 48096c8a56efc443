package schedule

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/internal/lease"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// Scheduler releases messages when they are due, by due time.
//
// Each message is released once, despite failures and any number of schedulers:
// a lightweight transaction decides between release and cancellation and fixes
// the write time of the outbox row, so every repetition writes the same row.
// After an outage all due messages are released, oldest first, as fast as the
// relay publishes them beside other events, see Config.Lag.
type Scheduler struct {
	cfg     Config
	clock   *dbclock.Clock // of the database: it dates outbox rows, and decides what is due
	store   *Store
	metrics *metrics
	pace    *pace         // of dispatch
	room    chan struct{} // holds one token for each message in memory

	mu         sync.Mutex
	pending    queue
	known      map[gocql.UUID]time.Time // in pending or being released
	leaseUntil time.Time
	knowledge  knowledge
	owed       owed
	complained map[string]time.Time
	wake       chan struct{}
}

// New returns a Scheduler. It does not start it.
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
		cfg: cfg, clock: &dbclock.Clock{Wall: cfg.Now}, store: cfg.Store, metrics: m, pace: newPace(cfg.Rate, cfg.Lag),
		room: make(chan struct{}, cfg.MaxPending), known: make(map[gocql.UUID]time.Time),
		complained: make(map[string]time.Time), wake: make(chan struct{}, 1),
	}
	if err := m.watch(cfg.Registerer, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Run runs the scheduler until ctx ends, finishes releases in progress and
// returns nil.
func (s *Scheduler) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { s.keepLease(ctx) })
	if err := s.measureClock(ctx, 0); err == nil {
		all.Go(func() { s.dispatch(ctx) })
	}
	all.Go(func() {
		for s.measureClock(ctx, measureEvery) == nil {
		}
	})
	var swept, far time.Time
	for {
		if s.working() {
			began := s.clock.Now()
			w := window{began.Add(-nearPolls * s.cfg.Poll), began.Add(min(nearPolls*s.cfg.Poll, s.cfg.LookAhead))}
			full := began.Sub(swept) >= s.cfg.Sweep
			if full || began.Sub(far) >= s.cfg.LookAhead/2 {
				w, far = window{began.Add(-lookBack), began.Add(s.cfg.LookAhead)}, began
			}
			if full {
				w.from = began.Add(-MaxAhead - 30*24*time.Hour) // covers the longest possible wait
			}
			asked := time.Now()
			err := s.scan(ctx, began, w)
			if ctx.Err() == nil {
				s.recordScan(asked, full, err)
			}
			switch {
			case err != nil:
				swept, far = time.Time{}, time.Time{} // messages that became due in the meantime are read before anything counts as known
			case full:
				swept = began
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, errLeaseLost) {
				s.fail("look", "failed to scan for due messages; retrying", err)
			}
		} else {
			swept, far = time.Time{}, time.Time{}
			s.recordLeaseEnd()
			s.dropPending()
		}
		if retry.Wait(ctx, s.cfg.Poll) != nil {
			break
		}
	}
	all.Wait()
	s.recordLease(false) // the next holder reports overdue messages
	s.dropPending()
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
			s.fail("lease", "failed to acquire the scheduler lease; retrying", err)
		case mine:
			s.mu.Lock()
			s.leaseUntil = began.Add(s.cfg.Lease)
			s.mu.Unlock()
			s.recordLease(true)
		case err == nil:
			s.recordLease(false)
		}
		if retry.Wait(ctx, s.cfg.Lease/4) != nil {
			break
		}
	}
	s.mu.Lock()
	s.leaseUntil = time.Time{}
	s.mu.Unlock()
	if err := l.Leave(context.WithoutCancel(ctx)); err != nil {
		s.fail("unlease", "failed to release the scheduler lease; the next scheduler waits until it expires", err)
	}
}

// working reports whether this scheduler has the lease. The lease only saves
// work: a release is safe without it.
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

// measureEvery is the interval at which the clock of the database is measured.
const measureEvery = 10 * time.Second

// nearPolls is the range, in polls before and after now, of most scans: for new
// messages that are due soon. Later messages are found by the scan of the whole
// LookAhead, twice per LookAhead, so that messages in memory are not read
// repeatedly.
const nearPolls = 4

// window is the range of slots of a scan, both ends inclusive.
type window struct{ from, until time.Time }

// scan reads the slots of a window into memory. It waits while memory is full.
func (s *Scheduler) scan(ctx context.Context, now time.Time, w window) error {
	from, until := w.from, w.until
	for {
		buckets, err := s.store.buckets(ctx, from, until, maxBuckets)
		if err != nil {
			return err
		}
		for _, b := range buckets {
			if err := s.scanBucket(ctx, b, Position{DeliverAt: later(b, from)}, earlier(until, b.Add(bucketSize-time.Millisecond)), now); err != nil {
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
	// lookBack is the age of due messages that are scanned twice per LookAhead
	// instead of by the next sweep, in case the clock of their writer was slow.
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

// scanBucket reads the slots of one bucket, and closes it if no more slots can
// appear.
func (s *Scheduler) scanBucket(ctx context.Context, bucket time.Time, after Position, until, now time.Time) error {
	found := 0
	for first := after; ; {
		slots, more, err := s.store.readSlots(ctx, bucket, after, until, max(1, min(s.cfg.MaxPending/shards, 500)))
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
			if found > 0 || !first.DeliverAt.Equal(bucket) {
				return nil
			}
			at, ok := closes(bucket.Add(bucketSize), now)
			if !ok {
				return nil
			}
			end := bucket.Add(bucketSize - time.Millisecond)
			if late, _, err := s.store.everywhere().readSlots(ctx, bucket, Position{DeliverAt: bucket}, end, 1); err != nil || len(late) > 0 {
				s.cfg.Logger.DebugContext(ctx, "a minute without slots stays open", "minute", bucket, "late_slots", len(late), "err", err)
				return nil
			}
			return s.store.closeBucket(ctx, bucket, at)
		}
		after = slots[len(slots)-1].position()
	}
}

// closes reports whether CloseAfter has passed since a time, and returns the time before now that
// is as long ago. now is by the database's clock: rows have its time, and one that a fast clock of
// this host removed ahead of it would hide rows that are written until then.
func closes(end, now time.Time) (at time.Time, ok bool) {
	at = now.Add(-CloseAfter)
	return at, at.After(end)
}

// measureClock measures the database's clock after a wait. It retries until ctx ends.
func (s *Scheduler) measureClock(ctx context.Context, wait time.Duration) error {
	for attempt := 1; ; attempt++ {
		if err := retry.Wait(ctx, wait); err != nil {
			return err
		}
		err := s.store.measure(ctx, s.clock)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			s.fail("clock", "failed to read the clock of the database; retrying", err)
		}
		wait = retry.Required(handPause, s.cfg.Poll, attempt)
	}
}

// add takes a slot into memory unless its message is present. It waits for
// room.
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
		s.signal()
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
	s.signal()
	return nil
}

// signal makes dispatch check the first message.
func (s *Scheduler) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// done removes a message from memory: it is in the outbox, or must be read
// again.
func (s *Scheduler) done(id gocql.UUID) {
	s.mu.Lock()
	delete(s.known, id)
	s.mu.Unlock()
	<-s.room
}

// dropPending removes all messages that are not being released.
func (s *Scheduler) dropPending() {
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

// next takes the first messages that are due, at most most of them; without any
// it returns the time until the next one.
func (s *Scheduler) next(now time.Time, most int) (xs []slot, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) > 0 && len(xs) < most {
		if wait = s.pending[0].at.Sub(now); wait > 0 {
			break
		}
		xs = append(xs, s.pending.pop())
	}
	if len(s.pending) == 0 {
		wait = time.Hour
	}
	s.metrics.pending.Set(float64(len(s.pending)))
	return xs, wait
}

// partitions divides slots into groups of one partition, at most releaseMost each.
func partitions(xs []slot) (out [][]slot) {
	type partition struct {
		bucket time.Time
		shard  int
	}
	last := map[partition]int{}
	for _, x := range xs {
		p := partition{x.bucket, shardFor(x.id)}
		i, ok := last[p]
		if !ok || len(out[i]) == releaseMost {
			i, out = len(out), append(out, nil)
			last[p] = i
		}
		out[i] = append(out[i], x)
	}
	return out
}

// dispatch releases due messages, in order, Concurrency at a time.
func (s *Scheduler) dispatch(ctx context.Context) {
	var busy sync.WaitGroup
	defer busy.Wait()
	places := make(chan struct{}, s.cfg.Concurrency)
	for {
		xs, wait := s.next(s.clock.Now(), min(s.pace.together(), s.cfg.Concurrency))
		if len(xs) == 0 {
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
		s.pace.update(len(xs), time.Now())
		if s.pace.limiter.WaitN(ctx, len(xs)) != nil {
			for _, x := range xs {
				s.done(x.id)
			}
			return
		}
		for range xs {
			places <- struct{}{} // a release is bounded by the timeouts of its statements
		}
		for _, xs := range partitions(xs) {
			busy.Go(func() {
				ended := func(x slot, err error) {
					if err != nil {
						s.owe(x.id, x.at)
						s.fail("release", "failed to release a message; retrying", err)
					} else {
						s.paid(x.id)
					}
					<-places
					s.done(x.id)
				}
				if s.working() {
					s.release(context.WithoutCancel(ctx), xs, ended)
					return
				}
				for _, x := range xs {
					s.owe(x.id, x.at)
					<-places
					s.done(x.id)
				}
			})
		}
	}
}
