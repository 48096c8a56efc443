package bench

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// A load with patience stores all of its events in a database that refuses some writes, and counts
// the repetitions; one without returns an error.
func TestLoad_RepeatsWrites(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		patience time.Duration
		stored   int64
		repeated int64
	}{{0, 14, 0}, {time.Minute, 20, 3}} {
		node, session := scyllatest.Start(t)
		node.Faults().MustAdd(faults.Rule{
			Match:  faults.Match{Kinds: []engine.OpKind{engine.OpLoggedBatch}, Table: "outbox_messages"},
			Count:  3,
			Effect: faults.Effect{Failure: &faults.Failure{Code: cqlerr.Overloaded}},
		})
		l := Load{Session: session, Table: outbox.DefaultTable, Events: NewEvents("T", 4, 100), Rate: 10, Batch: 2, Duration: time.Second, Patience: c.patience}
		stored, err := l.Run(t.Context())
		if stored != c.stored || (err == nil) != (c.stored == l.Total()) {
			t.Errorf("patience %s: Run() = %d, %v, want %d of %d events", c.patience, stored, err, c.stored, l.Total())
		}
		n, one := l.Repeated()
		if n != c.repeated || (one == nil) != (n == 0) {
			t.Errorf("patience %s: Repeated() = %d, %v, want %d", c.patience, n, one, c.repeated)
		}
	}
}
