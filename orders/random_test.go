package orders

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

var rounds = flag.Int("orders", 40, "orders of the random tests")

// Several clients create and cancel while statements fail in every way. Each
// retries its request with the same key until it has a response. In the end
// every order is stored once with its events, and the responses match.
func TestService_RandomFaults(t *testing.T) {
	t.Parallel()
	seed := seeds.Of(t)
	b := setup(t)
	timeout := faults.WriteTimeout(faults.Batch, 0, 1)
	casTimeout := faults.WriteTimeout(faults.CAS, 1, 2)
	soon := []time.Duration{30 * time.Millisecond, 200 * time.Millisecond}
	for kind, effects := range map[engine.OpKind][]faults.Effect{
		engine.OpLoggedBatch: {
			{Failure: timeout},
			{Failure: timeout, Fate: engine.FateApply},
			{Failure: timeout, Fate: engine.FateLater, Later: soon},
			{Failure: faults.Unavailable(0, 1)},
			{Disconnect: true},
			{Disconnect: true, Fate: engine.FateApply},
		},
		engine.OpCAS: {
			{Failure: casTimeout},
			{Failure: casTimeout, Fate: engine.FateDecided},
			{Failure: casTimeout, Fate: engine.FateApply},
			{Failure: faults.Unavailable(0, 1)},
			{Disconnect: true, Fate: engine.FateApply},
		},
		engine.OpWrite:      {{Failure: faults.WriteTimeout("", 0, 1)}, {Failure: faults.WriteTimeout("", 0, 1), Fate: engine.FateApply}},
		engine.OpRead:       {{Failure: faults.ReadTimeout(0, 1)}},
		engine.OpSerialRead: {{Failure: faults.ReadTimeout(0, 1)}},
	} {
		for _, e := range effects {
			b.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{kind}, Keyspace: "outbox"}, Probability: 0.06, Effect: e})
		}
	}

	type made struct {
		id        gocql.UUID
		cancelled bool
	}
	results := make([]made, *rounds)
	var next, wrong atomic.Int64
	var wg sync.WaitGroup
	for worker := range 8 {
		// No breaker: it would rightly open, and each caller would wait for it.
		s := b.brief(t, func(c *Config) { c.Breaker = Breaker{Failures: 1 << 20, Rate: 1, MinCalls: 1 << 20} })
		rnd := rand.New(rand.NewPCG(seed, uint64(worker)))
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(results) || wrong.Load() > 0 {
					return
				}
				r, err := insist(func() (Result, error) {
					return s.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: fmt.Sprintf("create-%d", i)})
				})
				if err != nil {
					t.Errorf("order %d: Create() = %v", i, err)
					wrong.Add(1)
					return
				}
				results[i].id = r.Order.ID
				if rnd.IntN(2) == 0 {
					continue
				}
				results[i].cancelled = true
				var won atomic.Int64
				var race sync.WaitGroup
				for n := range 2 {
					race.Go(func() {
						_, err := insist(func() (Result, error) {
							return s.Cancel(t.Context(), r.Order.ID, Cancellation{}, WriteOptions{IdempotencyKey: fmt.Sprintf("cancel-%d-%d", i, n)})
						})
						var cancelled *ConflictError
						switch {
						case err == nil:
							won.Add(1)
						case !errors.As(err, &cancelled):
							t.Errorf("order %d: Cancel() = %v", i, err)
							wrong.Add(1)
						}
					})
				}
				race.Wait()
				if won.Load() != 1 {
					t.Errorf("order %d: %d of two cancellations won", i, won.Load())
					wrong.Add(1)
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(soon[len(soon)-1]) // the last replays
	b.heal(t)
	for i, r := range results {
		if r.id == (gocql.UUID{}) {
			continue
		}
		o, err := b.Get(t.Context(), r.id)
		if err != nil || (o.Status == StatusCancelled) != r.cancelled {
			t.Errorf("order %d: Get() = %+v, %v, cancelled should be %v", i, o, err, r.cancelled)
		}
		if r.cancelled {
			b.mustBe(t, r.id, EventCreated, EventCancelled)
		} else {
			b.mustBe(t, r.id, EventCreated)
		}
	}
	if n := b.Session.Query("SELECT id FROM orders").Iter().NumRows(); n != len(results) {
		t.Errorf("%d orders are stored, want %d", n, len(results))
	}
}

// insist retries a request like a client, with a pause in which lost
// connections are restored.
func insist(f func() (Result, error)) (Result, error) {
	for range 200 {
		r, err := f()
		var u *UnavailableError
		if !errors.As(err, &u) {
			return r, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return f()
}
