package later

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/test/sim/trouble"
)

// trouble makes the database fail, and change its CDC generation, until ctx ends.
func (w *world) trouble(ctx context.Context, rnd *rand.Rand) {
	d := trouble.Database{
		Node: w.node, Rnd: rnd, Calm: 8 * time.Second, Long: 15 * time.Second, Often: []float64{0.1, 0.5, 1}, Timeout: statementTimeout,
		Spared: func(op engine.Op) bool { return op.Table == logTable }, // the watcher's
		Each: func() {
			if rnd.IntN(8) == 0 {
				if _, err := w.node.Faults().Node().NewGeneration(faults.Generation{}); err != nil {
					w.t.Error(err)
				}
			}
		},
	}
	d.Run(ctx)
}
