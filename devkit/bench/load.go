package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/hint"
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
	// Hints receives each event stored; nil for none.
	Hints *hint.Sender

	began     time.Time
	committed []atomic.Int64 // since began, in nanoseconds
	failed    atomic.Int64
	failure   atomic.Pointer[error]
}

// Total returns the number of events, including the warm-up.
func (l *Load) Total() int64 { return int64(l.Rate * l.Length().Seconds()) }

// Length returns the duration, the warm-up included.
func (l *Load) Length() time.Duration { return l.Duration + warmUp }

// warm returns the number of events of the warm-up.
func (l *Load) warm() int64 { return int64(l.Rate * warmUp.Seconds()) }

// intended returns when event i is to be sent, since began.
func (l *Load) intended(i int64) time.Duration {
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
	for ; sent < n && ctx.Err() == nil; sent++ {
		if wait := time.Until(l.began.Add(l.intended(sent))); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
		i := sent
		wg.Go(func() { l.write(ctx, i) })
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

func (l *Load) write(ctx context.Context, i int64) {
	e := l.Events.At(i)
	b := l.Session.Batch(gocql.LoggedBatch).WithContext(ctx)
	err := l.Table.Append(b, e)
	if err == nil {
		err = b.Exec()
	}
	if err != nil {
		l.failed.Add(1)
		l.failure.CompareAndSwap(nil, &err)
		return
	}
	l.committed[i].Store(int64(time.Since(l.began)))
	if l.Hints != nil {
		l.Hints.Committed(e.AggregateID)
	}
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
		at, ok := a.Since(i)
		if !ok || !l.began.Add(l.intended(i)).Before(until) {
			continue
		}
		since := at.Sub(l.began)
		record(in, since-l.intended(i))
		record(com, since-time.Duration(l.committed[i].Load()))
	}
	return latencyOf(in), latencyOf(com)
}
