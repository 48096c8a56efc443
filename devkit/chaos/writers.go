package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// refusedPause is between two attempts that the database refused, as of a user without permission.
const refusedPause = time.Second

// Writers append events to a few aggregates concurrently, by AppendNext, as the instances of a
// service do: they conflict, and repeat attempts with an unknown outcome.
type Writers struct {
	// Appender stores the events. Required.
	Appender *outbox.Appender
	// Aggregates are the aggregates of the events. They must be new: their first event has the number 1.
	Aggregates []outbox.ID
	// AggregateType and EventType are the types in all events.
	AggregateType, EventType string
	// NewID returns the id of an event.
	NewID func() outbox.ID
	// Number is the number of writers, Rate that of their events per second.
	Number int
	Rate   float64
	// Patience limits the attempts to append one event.
	Patience time.Duration
	// Stored is called with each event that AppendNext has stored, by each writer.
	Stored func(outbox.Event)

	conflicts, undetermined atomic.Int64

	mu   sync.Mutex
	last map[outbox.ID]int64 // the highest number that a writer has seen
}

// Conflicts returns how often another writer was first. Undetermined returns the number of events
// whose outcome stayed unknown for Patience.
func (w *Writers) Conflicts() int64         { return w.conflicts.Load() }
func (w *Writers) UndeterminedCount() int64 { return w.undetermined.Load() }

// Run appends events until ctx ends, and finishes the begun ones. The error is that of an
// event which was not stored in Patience, for another reason than an unknown outcome.
func (w *Writers) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w.last = make(map[outbox.ID]int64)
	limit := rate.NewLimiter(rate.Limit(w.Rate), 1)
	var all sync.WaitGroup
	for range w.Number {
		all.Go(func() {
			for limit.Wait(ctx) == nil {
				if err := w.append(context.WithoutCancel(ctx)); err != nil {
					stop(err)
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// append appends one event.
func (w *Writers) append(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.Patience)
	defer cancel()
	e := outbox.Event{
		ID: w.NewID(), AggregateID: w.Aggregates[rand.IntN(len(w.Aggregates))], AggregateType: w.AggregateType, Type: w.EventType,
		CreatedAt: time.Now(),
	}
	e.Sequence = w.seen(e.AggregateID, 0) + 1
	e.Payload = fmt.Appendf(nil, `{"event":%q}`, e.ID)
	first := outbox.AppendOptions{SearchFrom: e.Sequence}
	for {
		r, err := w.Appender.AppendNext(ctx, e, first)
		conflict, taken := errors.AsType[*outbox.ConflictError](err)
		_, invalid := errors.AsType[*outbox.InvalidEventError](err)
		_, unknown := errors.AsType[*outbox.UnknownOutcomeError](err)
		switch {
		case err == nil:
			w.seen(e.AggregateID, r.Event.Sequence)
			w.Stored(r.Event)
			return nil
		case taken:
			w.conflicts.Add(1)
			e.Sequence = w.seen(e.AggregateID, conflict.Events[len(conflict.Events)-1].Sequence) + 1
		case !invalid && ctx.Err() == nil:
			if !unknown { // AppendNext pauses between its attempts, and makes one if another cannot help
				_ = retry.Wait(ctx, refusedPause)
			}
		case unknown:
			w.undetermined.Add(1)
			return nil
		default:
			return err
		}
	}
}

// seen notes a number of an aggregate, and returns the highest one.
func (w *Writers) seen(aggregate outbox.ID, number int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[aggregate] = max(w.last[aggregate], number)
	return w.last[aggregate]
}
