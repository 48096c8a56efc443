package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/hint"
)

// warmUp is the part of a load whose latencies do not count: connections are
// made, statements prepared, memory grown.
const warmUp = time.Second

// Load writes events at a fixed rate. A slow write does not delay those after it, and
// their times count from when they were to be sent.
type Load struct {
	Session *gocql.Session
	Table   outbox.Table
	Events  *Events
	// Rate is in events per second.
	Rate     float64
	Duration time.Duration
	// Batch is the number of events of one write, each of another aggregate; 0 is 1.
	Batch int
	// Patience is how long a write that fails is repeated, as one does to a database that is too
	// slow; 0 is not at all.
	Patience time.Duration
	// Hints receives each event stored; nil for none.
	Hints *hint.Sender

	began     time.Time
	committed []atomic.Int64 // since began, in nanoseconds
	failed    atomic.Int64
	repeated  atomic.Int64
	failure   atomic.Pointer[error] // of a write that was not repeated
	slow      atomic.Pointer[error] // of one that was
}

// Total returns the number of events, including the warm-up.
func (l *Load) Total() int64 { return int64(l.Rate * l.Length().Seconds()) }

// Length returns the duration, the warm-up included.
func (l *Load) Length() time.Duration { return l.Duration + warmUp }

// warm returns the number of events of the warm-up.
func (l *Load) warm() int64 { return int64(l.Rate * warmUp.Seconds()) }

// batch returns the number of events of one write.
func (l *Load) batch() int64 { return int64(max(1, l.Batch)) }

// sendTime returns when event i is to be sent, since began: with the first of its batch.
func (l *Load) sendTime(i int64) time.Duration {
	i -= i % l.batch()
	return time.Duration(float64(i) / l.Rate * float64(time.Second))
}

// Run writes the events, waits for all responses and returns how many were stored, and
// an error if it was not all of them.
func (l *Load) Run(ctx context.Context) (int64, error) {
	n := l.Total()
	l.committed = make([]atomic.Int64, n)
	l.began = time.Now()
	var wg sync.WaitGroup
	sent := int64(0)
	for sent < n && ctx.Err() == nil {
		if wait := time.Until(l.began.Add(l.sendTime(sent))); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
		from, to := sent, min(sent+l.batch(), n)
		wg.Go(func() { l.write(ctx, from, to) })
		sent = to
	}
	wg.Wait()
	stored := sent - l.failed.Load()
	if ctx.Err() != nil {
		return stored, context.Cause(ctx)
	}
	if err := l.failure.Load(); err != nil {
		return stored, fmt.Errorf("%d of %d events were not stored, one because of: %w", l.failed.Load(), n, *err)
	}
	return stored, nil
}

// repeatMin and repeatMax are the waits before a write is repeated.
const repeatMin, repeatMax = 100 * time.Millisecond, 5 * time.Second

// Repeated returns how many writes failed and were repeated, and the error of one of them; nil if
// there is none.
func (l *Load) Repeated() (writes int64, one error) {
	if err := l.slow.Load(); err != nil {
		one = *err
	}
	return l.repeated.Load(), one
}

// write stores the events of a batch. It repeats a write with an unknown outcome, too: the
// events have ids.
func (l *Load) write(ctx context.Context, from, to int64) {
	var err error
	for began, attempt := time.Now(), 1; ; attempt++ {
		if err = l.store(ctx, from, to); err == nil || time.Since(began) >= l.Patience {
			break
		}
		slow := err
		l.slow.CompareAndSwap(nil, &slow)
		if l.repeated.Add(1); retry.Wait(ctx, retry.Backoff(repeatMin, repeatMax, attempt)) != nil {
			break
		}
	}
	if err != nil {
		l.failed.Add(to - from)
		l.failure.CompareAndSwap(nil, &err)
		return
	}
	at := int64(time.Since(l.began))
	for i := from; i < to; i++ {
		l.committed[i].Store(at)
		if l.Hints != nil {
			l.Hints.Committed(outbox.IDFromUUID(l.Events.aggregate(i)))
		}
	}
}

// store writes the events of a batch once.
func (l *Load) store(ctx context.Context, from, to int64) error {
	b := l.Session.Batch(gocql.LoggedBatch).WithContext(ctx)
	for i := from; i < to; i++ {
		if err := l.Table.Append(b, l.Events.At(i)); err != nil {
			return err
		}
	}
	return b.Exec()
}

// latency returns the times from when event i was to be sent, and from when it was stored,
// until it came; false if it did not.
func (l *Load) latency(a *Arrivals, i int64) (intended, committed time.Duration, ok bool) {
	at, ok := a.Since(i)
	since := at.Sub(l.began)
	return since - l.sendTime(i), since - time.Duration(l.committed[i].Load()), ok
}

// ArrivalRate returns the rate at which events came, from the end of the warm-up.
func (l *Load) ArrivalRate(a *Arrivals) Rate {
	var n int64
	began := l.began.Add(warmUp)
	last := began
	for i := l.warm(); i < int64(len(l.committed)); i++ {
		if at, ok := a.Since(i); ok {
			n++
			if at.After(last) {
				last = at
			}
		}
	}
	return NewRate(n, last.Sub(began))
}

// Latencies returns the latencies from when each event was to be sent, and from when it
// was stored, until it came; without the warm-up.
func (l *Load) Latencies(a *Arrivals) (intended, committed Latency) {
	return l.LatenciesUntil(a, l.began.Add(l.Length()))
}

// LatenciesUntil returns the latencies of the events that were to be sent before a
// time.
func (l *Load) LatenciesUntil(a *Arrivals, until time.Time) (intended, committed Latency) {
	in, com := newHistogram(), newHistogram()
	for i := l.warm(); i < int64(len(l.committed)); i++ {
		intended, committed, ok := l.latency(a, i)
		if !ok || !l.began.Add(l.sendTime(i)).Before(until) {
			continue
		}
		record(in, intended)
		record(com, committed)
	}
	return newLatency(in), newLatency(com)
}
