package sim

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

// failBatches makes logged batches fail, in each of ten ways with probability p, until
// stop is called.
func (w *world) failBatches(p float64) (stop func()) {
	return w.add(p, engine.OpLoggedBatch,
		// Recorded from clusters: see package faults.
		faults.BatchlogReplay(62*time.Second, 63*time.Second),
		faults.BatchlogReplay(0, 18500*time.Millisecond, 47500*time.Millisecond),
		faults.BatchlogReplay(),
		faults.BatchLogTimeout(62*time.Second, 65*time.Second),
		faults.BatchLogTimeout(),
		faults.CoordinatorCrash(time.Second, 37*time.Second, 38*time.Second),
		faults.CoordinatorCrash(),
		faults.Rule{Name: "applied, with a timeout", Effect: faults.Effect{
			Delay: faults.WriteTimeoutAfter, Failure: faults.WriteTimeout(faults.Batch, 1, 2), Fate: engine.FateApply,
		}},
		faults.Rule{Name: "unavailable", Effect: faults.Effect{Failure: faults.Unavailable(1, 2)}},
		faults.Rule{Name: "overloaded", Effect: faults.Effect{Failure: faults.Refuse(cqlerr.Overloaded, "")}},
	)
}

// failCAS makes conditional writes fail, in each of four ways with probability p: decided
// and invisible, applied, or not applied.
func (w *world) failCAS(p float64) (stop func()) {
	return w.add(p, engine.OpCAS, casFaults()...)
}

func casFaults() []faults.Rule {
	return []faults.Rule{
		faults.CASTimeout(true),
		faults.CASTimeout(false),
		{Name: "applied, with a timeout", Effect: faults.Effect{
			Delay: faults.WriteTimeoutAfter, Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateApply,
		}},
		{Name: "applied, with the connection lost", Effect: faults.Effect{Disconnect: true, Fate: engine.FateApply}},
	}
}

// failDeadLetters makes changes of dead letters fail, in each of four ways with probability
// p.
func (w *world) failDeadLetters(p float64) (stop func()) {
	rules := casFaults()
	for i := range rules {
		rules[i].Match.Table = deadLetters
	}
	return w.add(p, engine.OpCAS, rules...)
}

// failReads makes reads of tables and logs time out with probability p.
func (w *world) failReads(p float64) (stop func()) {
	return w.add(p, engine.OpRead, faults.Rule{
		Name: "read timeout", Match: faults.Match{Keyspace: keyspace},
		Effect: faults.Effect{Delay: faults.ReadTimeoutAfter, Failure: faults.ReadTimeout(1, 2)},
	})
}

// failWrites makes plain writes time out with probability p: the ones of checkpoints, and of
// orders after their events. Each may be applied.
func (w *world) failWrites(p float64) (stop func()) {
	late := faults.Rule{Name: "applied later, with a timeout", Effect: faults.Effect{
		Delay: faults.WriteTimeoutAfter, Failure: faults.WriteTimeout("", 1, 2), Fate: engine.FateLater, Later: []time.Duration{20 * time.Second},
	}}
	return w.add(p/3, engine.OpWrite,
		faults.Rule{Name: "write timeout", Effect: faults.Effect{Delay: faults.WriteTimeoutAfter, Failure: faults.WriteTimeout("", 1, 2)}},
		faults.Rule{Name: "applied, with a timeout", Effect: faults.Effect{
			Delay: faults.WriteTimeoutAfter, Failure: faults.WriteTimeout("", 1, 2), Fate: engine.FateApply,
		}},
		late,
	)
}

// nowAndThen calls do at random intervals until stop is called.
func (w *world) nowAndThen(wait func() time.Duration, do func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait()):
				do()
			}
		}
	}()
	return func() { cancel(); <-done }
}

// add adds rules for a kind of operation until stop is called.
func (w *world) add(p float64, kind engine.OpKind, rules ...faults.Rule) (stop func()) {
	var ids []int
	for _, r := range rules {
		r.Match.Kinds, r.Count, r.Probability = []engine.OpKind{kind}, 0, p
		ids = append(ids, w.faults().MustAdd(r))
	}
	return func() {
		for _, id := range ids {
			if err := w.faults().Remove(id); err != nil {
				w.t.Error(err)
			}
		}
	}
}

// onTablets reports whether the streams of the database belong to tablets.
func (w *world) onTablets() bool { return w.settings.node.Version == "" }

// newStreams replaces the streams of the CDC log by more.
func (w *world) newStreams() {
	w.t.Helper()
	if w.onTablets() {
		w.resize(false)
	} else {
		w.newGeneration(2)
	}
}

// newGeneration begins a generation like a joining node: announced some seconds before it
// starts, with more streams than before.
func (w *world) newGeneration(extraTokens int) {
	w.t.Helper()
	if _, err := w.faults().Node().NewGeneration(faults.Generation{ExtraTokens: extraTokens}); err != nil {
		w.t.Errorf("begin a generation: %v", err)
	}
}

// resize splits the tablets of the outbox, or merges them.
func (w *world) resize(merge bool) {
	w.t.Helper()
	r := faults.Resize{Keyspace: keyspace, Table: events, Merge: merge}
	if _, err := w.faults().Node().Resize(r); err != nil {
		w.t.Errorf("resize tablets: %v", err)
	}
}

// crashWhen kills the relay at the nth event from now on, or after patience. on registers
// the callback for each event.
func (w *world) crashWhen(on func(func()), n int, patience time.Duration) {
	w.t.Helper()
	reached := make(chan struct{})
	var seen atomic.Int64
	on(func() {
		if seen.Add(1) == int64(n) {
			close(reached)
		}
	})
	select {
	case <-reached:
	case <-time.After(patience):
	}
	on(nil)
	w.crashRelay()
}
