package sim

import (
	"math/rand/v2"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

// databaseKinds contains the faults of the database and of the connections to it.
var databaseKinds = []*kind{
	{
		name: "database gone", most: untilSpan,
		excluding: []string{"database gone", "database frozen", "conditional writes fail"},
		begin: func(_ *rand.Rand, w *world) func() {
			w.cutDatabase()
			return func() { w.net.mend(database) }
		},
	},
	{
		name: "database frozen", most: 40 * time.Second,
		excluding: []string{
			"database gone", "database frozen", "conditional writes fail", "batches fail",
			"reads fail", "relay restarts", "relay crashes",
		},
		begin: func(_ *rand.Rand, w *world) func() { return w.freezeDatabase() },
	},
	{
		name: "batches fail", most: time.Hour, excluding: []string{"batches fail"},
		begin: func(r *rand.Rand, w *world) func() { return w.failBatches(0.07 * r.Float64()) },
	},
	{
		// Retries with an Idempotency-Key happen long after the first attempt.
		name: "no batch comes through", most: time.Hour, excluding: []string{"no batch comes through", "rows late"},
		begin: func(_ *rand.Rand, w *world) func() {
			return w.add(1, engine.OpLoggedBatch, faults.Rule{
				Name: "never applied", Effect: faults.Effect{Delay: faults.WriteTimeoutAfter, Failure: faults.WriteTimeout(faults.BatchLog, 0, 1)},
			})
		},
	},
	{
		// No batch succeeds, nor does a retry; each is applied up to three times, up to
		// ten minutes later.
		name: "rows late", most: 3 * time.Minute, excluding: []string{"rows late"},
		when: func(p *plan) bool { return p.Window.std() >= wideWindow },
		begin: func(r *rand.Rand, w *world) func() {
			var rules []faults.Rule
			for range 8 {
				times := make([]time.Duration, r.IntN(4))
				for i := range times {
					times[i] = upTo(r, 10*time.Minute)
				}
				rules = append(rules, faults.BatchlogReplay(times...), faults.CoordinatorCrash(times...))
			}
			return w.add(0.2, engine.OpLoggedBatch, rules...)
		},
	},
	{
		// Another client writes rows that are not events.
		name: "rows that cannot be read", most: 10 * time.Minute,
		begin: func(r *rand.Rand, w *world) func() {
			return w.nowAndThen(func() time.Duration { return upTo(r, 2*time.Minute) }, w.writeGarbage)
		},
	},
	{
		name: "conditional writes fail", most: time.Hour,
		excluding: []string{"database gone", "database frozen", "conditional writes fail", "new streams"},
		begin:     func(r *rand.Rand, w *world) func() { return w.failCAS(0.15 * r.Float64()) },
	},
	{
		name: "dead letters fail", most: 2 * time.Hour, excluding: []string{"database frozen", "dead letters fail"},
		begin: func(r *rand.Rand, w *world) func() { return w.failDeadLetters(0.25 * r.Float64()) },
	},
	{
		name: "reads fail", most: time.Hour, excluding: []string{"database frozen"},
		begin: func(r *rand.Rand, w *world) func() { return w.failReads(0.5 * r.Float64()) },
	},
	{
		name: "writes fail", most: 2 * time.Hour, excluding: []string{"writes fail"},
		begin: func(r *rand.Rand, w *world) func() { return w.failWrites(r.Float64()) },
	},
	{
		name: "new streams", most: 0, excluding: []string{"new streams", "conditional writes fail"},
		begin: func(r *rand.Rand, w *world) func() {
			if w.onTablets() {
				n, err := w.faults().Node().Tablets(keyspace, events)
				if err != nil {
					w.t.Error(err)
				}
				w.resize(n > 1 && (n > 8 || r.IntN(2) == 0))
			} else {
				w.newGeneration(r.IntN(4))
			}
			return func() {}
		},
	},
}
