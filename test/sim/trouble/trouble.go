// Package trouble makes the database of a simulation fail.
package trouble

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Database is how a database fails, one way after the other.
type Database struct {
	Node *scyllafake.Server
	// Rnd draws everything that follows.
	Rnd *rand.Rand
	// Calm is how long at most all is well between two failures, Long how long at
	// most one lasts.
	Calm, Long time.Duration
	// Often are shares of the statements that fail; one is drawn for each failure.
	Often []float64
	// Timeout is that of the processes' statements. A slow answer may take three times as long.
	Timeout time.Duration
	// Spared, if not nil, says which statements never fail.
	Spared func(engine.Op) bool
	// Each, if not nil, is called when a failure begins.
	Each func()
}

// Run makes the database fail until ctx ends.
func (d *Database) Run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = retry.Wait(ctx, d.upTo(d.Calm))
		if d.Each != nil {
			d.Each()
		}
		often := d.Often[d.Rnd.IntN(len(d.Often))]
		for _, r := range d.rules() {
			r.Match.Keyspace, r.Probability = schema.DefaultKeyspace, often
			if d.Spared != nil {
				r.Match.Func = func(op engine.Op) bool { return !d.Spared(op) }
			}
			d.Node.Faults().MustAdd(r)
		}
		_ = retry.Wait(ctx, d.upTo(d.Long))
		d.Node.Faults().Clear()
	}
}

func (d *Database) upTo(most time.Duration) time.Duration {
	return time.Duration(d.Rnd.Int64N(int64(most)))
}

// rules are one way to fail. A conditional write that timed out was carried out,
// or lost, or decided and left to who comes next; any other one may also turn up later.
func (d *Database) rules() []faults.Rule {
	timeout := func(f engine.Fate, kinds ...engine.OpKind) faults.Rule {
		return faults.Rule{
			Match:  faults.Match{Kinds: kinds},
			Effect: faults.Effect{Delay: d.upTo(time.Second), Failure: faults.WriteTimeout("", 0, 1), Fate: f},
		}
	}
	plain := func(f engine.Fate) faults.Rule {
		return timeout(f, engine.OpWrite, engine.OpUnloggedBatch, engine.OpLoggedBatch)
	}
	conditional := func(f engine.Fate) faults.Rule { return timeout(f, engine.OpCAS) }
	switch d.Rnd.IntN(6) {
	case 0:
		return []faults.Rule{{Effect: faults.Effect{Failure: faults.Unavailable(0, 1)}}}
	case 1: // slower than some wait for; it is done all the same
		return []faults.Rule{{Effect: faults.Effect{Delay: d.upTo(3 * d.Timeout)}}}
	case 2:
		return []faults.Rule{plain(engine.FateApply), conditional(engine.FateApply)}
	case 3:
		return []faults.Rule{plain(engine.FateNormal), conditional(engine.FateNormal)}
	case 4:
		return []faults.Rule{plain(engine.FateApply), conditional(engine.FateDecided)}
	}
	later := plain(engine.FateLater)
	later.Effect.Later = []time.Duration{d.upTo(65 * time.Second)}
	return []faults.Rule{later, conditional(engine.FateDecided)}
}
