package reacting

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

var (
	plain       = []engine.OpKind{engine.OpWrite, engine.OpUnloggedBatch, engine.OpLoggedBatch}
	conditional = []engine.OpKind{engine.OpCAS}
)

// trouble makes the database fail, one way after the other, until ctx ends.
func (w *world) trouble(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(rnd.Int64N(int64(30*time.Second))))
		often := []float64{0.2, 0.6, 1}[rnd.IntN(3)]
		for _, r := range faultsOf(rnd) {
			r.Match.Keyspace, r.Probability = schema.DefaultKeyspace, often
			w.node.Faults().MustAdd(r)
		}
		w.troubles.Add(1)
		pause(ctx, time.Duration(rnd.Int64N(int64(12*time.Second))))
		w.node.Faults().Clear()
	}
}

// faultsOf are one way to fail. A write that timed out was carried out, or lost, or
// turns up later.
func faultsOf(rnd *rand.Rand) []faults.Rule {
	timeout := func(kinds []engine.OpKind, f engine.Fate) faults.Rule {
		return faults.Rule{
			Match:  faults.Match{Kinds: kinds},
			Effect: faults.Effect{Delay: time.Duration(rnd.Int64N(int64(time.Second))), Failure: faults.WriteTimeout("", 0, 1), Fate: f},
		}
	}
	switch rnd.IntN(5) {
	case 0:
		return []faults.Rule{{Effect: faults.Effect{Failure: faults.Unavailable(0, 1)}}}
	case 1: // slower than some wait for; it is done all the same
		return []faults.Rule{{Effect: faults.Effect{Delay: time.Duration(rnd.Int64N(int64(3 * statementTimeout)))}}}
	case 2:
		return []faults.Rule{timeout(plain, engine.FateApply), timeout(conditional, engine.FateApply)}
	case 3:
		return []faults.Rule{timeout(plain, engine.FateNormal), timeout(conditional, engine.FateDecided)}
	}
	later := timeout(plain, engine.FateLater)
	later.Effect.Later = []time.Duration{time.Duration(rnd.Int64N(int64(65 * time.Second)))}
	return []faults.Rule{later, timeout(conditional, engine.FateDecided)}
}
