package capture

import (
	"context"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/budget"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// blockedLookups is how many lookups by key of waiting aggregates run concurrently.
const blockedLookups = 64

// blocked holds the events of aggregates that cannot continue yet, beside the stream that
// showed them: an earlier event is missing, or it is not known which of the earlier ones
// are published. Each aggregate keeps its order, and other aggregates of the stream
// proceed. The events are not acknowledged, so the stream's checkpoint stays before
// them. When the budget is used up the stream waits.
//
// It is safe for concurrent use; one goroutine adds the events of one aggregate.
type blocked struct {
	ctx    context.Context // of all waiting events, independent of the stream
	budget *budget.Budget
	admit  func(context.Context, *blockedEvent) error
	// fail receives the error that ends the reader. It is called without the lock.
	fail func(error)
	wg   sync.WaitGroup

	mu      sync.Mutex
	waiting map[gocql.UUID]*blockedLane
	err     error // of the last read; nil after a success
}

// read records the result of a read that an aggregate needs.
func (a *blocked) read(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// blockedLane is the events of one aggregate in their order.
type blockedLane struct {
	events []*blockedEvent
}

// blockedEvent is an event that waits.
type blockedEvent struct {
	cdclog.StoredEvent
	began   int64 // start of the read of its stream in this run
	since   time.Time
	settled publish.Settlement
}

func newBlocked(ctx context.Context, cfg *Config, admit func(context.Context, *blockedEvent) error) *blocked {
	return &blocked{
		ctx:    ctx,
		budget: budget.New(max(cfg.MaxInFlightRecords/4, 1), max(cfg.MaxInFlightBytes/4, 1)),
		admit:  admit, fail: func(error) {}, waiting: make(map[gocql.UUID]*blockedLane),
	}
}

// add adds an event. It waits while the budget is used up.
func (a *blocked) add(ctx context.Context, e *blockedEvent) error {
	if err := a.budget.Take(ctx, budget.EventSize(&e.Event)); err != nil {
		return err
	}
	e.since = time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	l, ok := a.waiting[e.AggregateID.UUID()]
	if !ok {
		l = &blockedLane{}
		a.waiting[e.AggregateID.UUID()] = l
		a.wg.Go(func() { a.run(a.ctx, e.AggregateID.UUID(), l) })
	}
	l.events = append(l.events, e)
	return nil
}

// run admits the events of one aggregate until none is left. After an error the
// aggregate remains, so that its events keep their order.
func (a *blocked) run(ctx context.Context, aggregate gocql.UUID, l *blockedLane) {
	for {
		a.mu.Lock()
		if len(l.events) == 0 {
			delete(a.waiting, aggregate)
			a.mu.Unlock()
			return
		}
		e := l.events[0]
		a.mu.Unlock()
		if err := a.admit(ctx, e); err != nil {
			if ctx.Err() == nil && failure.Classify(err) != failure.Stopped {
				a.fail(err)
			}
			return
		}
		a.mu.Lock()
		l.events[0] = nil
		l.events = l.events[1:]
		a.mu.Unlock()
		a.budget.Give(budget.EventSize(&e.Event))
	}
}

// WaitingAggregates are aggregates that wait for an earlier event, or for the proof that
// it is published, while the rest of their streams proceeds.
type WaitingAggregates struct {
	// Count is the number of aggregates, Events the number of their events.
	Count, Events int
	// Oldest is an event of the aggregate with the longest wait, and Since the time when
	// the relay read it.
	Oldest outbox.Event
	Since  time.Time
	// Err is the last error of a read that they need, nil if none failed.
	Err error
}

// Waiting returns the aggregates that wait beside their streams; zero for a nil Sequencer.
func (s *Sequencer) Waiting() WaitingAggregates {
	if s == nil {
		return WaitingAggregates{}
	}
	return s.blocked.state()
}

// state returns the waiting aggregates.
func (a *blocked) state() (out WaitingAggregates) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out.Count, out.Err = len(a.waiting), a.err
	for _, l := range a.waiting {
		out.Events += len(l.events)
		if len(l.events) > 0 && (out.Since.IsZero() || l.events[0].since.Before(out.Since)) {
			e := &l.events[0].Event
			out.Since = l.events[0].since
			out.Oldest = outbox.Event{ID: e.ID, AggregateID: e.AggregateID, Sequence: e.Sequence, Type: e.Type}
		}
	}
	return out
}
