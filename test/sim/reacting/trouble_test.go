package reacting

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/sim/trouble"
)

// trouble makes the database fail until ctx ends.
func (w *world) trouble(ctx context.Context, rnd *rand.Rand) {
	d := trouble.Database{
		Node: w.node, Rnd: rnd, Calm: 30 * time.Second, Long: 12 * time.Second, Often: []float64{0.2, 0.6, 1}, Timeout: statementTimeout,
		Each: func() { w.troubles.Add(1) },
	}
	d.Run(ctx)
}
