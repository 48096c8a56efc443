package orders

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func TestService_CreateAndGet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, err := b.Create(t.Context(), testNewOrder(), WriteOptions{
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "a=b",
	})
	if err != nil || r.Replayed {
		t.Fatalf("Create() = %+v, %v", r, err)
	}
	b.mustBe(t, r.Order.ID, EventCreated)
	got, err := b.Get(t.Context(), r.Order.ID)
	if err != nil || !reflect.DeepEqual(got, r.Order) {
		t.Errorf("Get() = %+v, %v, want %+v", got, err, r.Order)
	}
	e := b.readStored(t, r.Order.ID).events[0]
	if e.Headers["traceparent"] == "" || e.Headers["tracestate"] != "a=b" || e.AggregateType != AggregateType {
		t.Errorf("event = %+v, want trace context in the headers", e)
	}
	if _, err := b.Get(t.Context(), gocql.UUID{1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get() of an unknown order = %v, want ErrNotFound", err)
	}
	var bad *InvalidError
	if _, err := b.Create(t.Context(), NewOrder{}, WriteOptions{IdempotencyKey: "ü"}); !errors.As(err, &bad) || len(bad.Fields) != 4 {
		t.Errorf("Create() of an empty order = %v, want three fields and the key", err)
	}
}

func TestService_GuestOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := testNewOrder()
	n.CustomerID, n.Invoice, n.PlacedAt = nil, "", nil
	r, err := b.Create(t.Context(), n, WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Get(t.Context(), r.Order.ID)
	if err != nil || !reflect.DeepEqual(got, r.Order) {
		t.Errorf("Get() = %+v, %v, want %+v", got, err, r.Order)
	}
}

// batchFault is an outcome of a batch.
type batchFault struct {
	name   string
	effect faults.Effect
	// never: no affected batch is ever applied.
	never bool
	// refused: the database reports that it applied nothing.
	refused bool
}

var batchFaults = []batchFault{
	{name: "BATCH, never applied", effect: faults.Effect{Failure: faults.WriteTimeout(faults.Batch, 0, 1)}, never: true},
	{name: "BATCH, applied", effect: faults.Effect{Failure: faults.WriteTimeout(faults.Batch, 0, 1), Fate: engine.FateApply}},
	{name: "BATCH, replayed twice", effect: faults.Effect{
		Failure: faults.WriteTimeout(faults.Batch, 0, 1), Fate: engine.FateLater, Later: []time.Duration{150 * time.Millisecond, 900 * time.Millisecond},
	}},
	{name: "BATCH_LOG, never applied", effect: faults.Effect{Failure: faults.WriteTimeout(faults.BatchLog, 0, 1)}, never: true},
	{name: "BATCH_LOG, applied late", effect: faults.Effect{
		Failure: faults.WriteTimeout(faults.BatchLog, 0, 1), Fate: engine.FateLater, Later: []time.Duration{1200 * time.Millisecond},
	}},
	{name: "server error, applied", effect: faults.Effect{Failure: faults.Refuse(cqlerr.Server, "boom"), Fate: engine.FateApply}},
	{name: "connection lost, applied", effect: faults.Effect{Disconnect: true, Fate: engine.FateApply}},
	{name: "connection lost, never applied", effect: faults.Effect{Disconnect: true}, never: true},
	{name: "no answer in time", effect: faults.Effect{Delay: never}, never: true},
	{name: "unavailable", effect: faults.Effect{Failure: faults.Unavailable(0, 1)}, never: true, refused: true},
	{name: "overloaded", effect: faults.Effect{Failure: faults.Refuse(cqlerr.Overloaded, "busy")}, never: true, refused: true},
}

// setupReplays is setup on a release of which each replay of a batch adds rows to the CDC log, by
// which a test sees it.
func setupReplays(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{World: world.StartOn(t, scyllafake.Config{Tokens: 4, Version: "5.1"})}
	b.Service = b.another(t)
	return b
}

// After any outcome of one batch, the response is right and there is one event.
func TestService_CreateThroughOneFault(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	for _, f := range batchFaults {
		for _, key := range []string{"", "k"} {
			t.Run(fmt.Sprintf("%s key=%q", f.name, key), func(t *testing.T) {
				t.Parallel()
				b := setupReplays(t)
				s := b.another(t, within(f.effect))
				hits := b.fault(engine.OpLoggedBatch, 1, f.effect)
				r, err := s.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: key})
				if hits() != 1 {
					t.Fatalf("%d batches were hit, want 1", hits())
				}
				if f.refused {
					if !isRefused(err) {
						t.Fatalf("Create() = %v, want it refused with nothing stored", err)
					}
					if key == "" {
						return
					}
					if r, err = s.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: key}); err != nil || !r.Replayed {
						t.Fatalf("Create() again = %+v, %v", r, err)
					}
				}
				if err != nil && !f.refused {
					t.Fatalf("Create() = %v, want success at the second attempt", err)
				}
				b.mustBe(t, r.Order.ID, EventCreated)
				if n := len(f.effect.Later); n > 0 {
					b.awaitLogged(t, r.Order.ID, n+1) // the last replay
					b.mustBe(t, r.Order.ID, EventCreated)
				}
			})
		}
	}
}

// Even if every attempt fails: no error for an order that exists, no success
// for one that does not, and a retry with the key completes just that order.
func TestService_CreateThroughLastingFault(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	for _, f := range batchFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			b := setupReplays(t)
			hits := b.fault(engine.OpLoggedBatch, 0, f.effect)
			s := b.brief(t, within(f.effect))
			r, err := s.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: "k"})
			replays := hits() * len(f.effect.Later)
			var u *UnavailableError
			switch {
			case f.refused:
				if !isRefused(err) {
					t.Fatalf("Create() = %v, want it refused with nothing stored", err)
				}
			case f.never:
				if !isUnknown(err) {
					t.Fatalf("Create() = %v, want outcome unknown", err)
				}
			case err == nil:
				b.heal(t)
				b.mustBe(t, r.Order.ID, EventCreated)
			case !isUnknown(err):
				t.Fatalf("Create() = %v, want success or outcome unknown", err)
			}
			b.heal(t)
			if errors.As(err, &u) && f.never && u.Unknown {
				b.mustBe(t, u.OrderID)
			}
			again, err := b.another(t).Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: "k"})
			if err != nil || !again.Replayed {
				t.Fatalf("Create() again = %+v, %v, want the same order", again, err)
			}
			if u != nil && u.Unknown && again.Order.ID != u.OrderID || u == nil && r.Order.ID != (gocql.UUID{}) && again.Order.ID != r.Order.ID {
				t.Errorf("Create() again = order %s, want %+v of the error, the first response %s", again.Order.ID, u, r.Order.ID)
			}
			if replays > 0 {
				b.awaitLogged(t, again.Order.ID, replays) // the last one
			}
			b.mustBe(t, again.Order.ID, EventCreated)
		})
	}
}

func TestService_CreateWithAClockThatIsOff(t *testing.T) {
	t.Parallel()
	scyllatest.EachVersion(t, func(t *testing.T, conf scyllafake.Config) {
		for _, off := range []time.Duration{-24 * time.Hour, -time.Minute, time.Minute, 24 * time.Hour} {
			t.Run(off.String(), func(t *testing.T) {
				t.Parallel()
				b := &fixture{World: world.StartOn(t, conf)}
				b.Service = b.another(t, func(c *Config) { c.Clock = world.Clock(func() time.Time { return time.Now().Add(off) }) })
				r, err := b.Create(t.Context(), testNewOrder(), WriteOptions{})
				if err != nil {
					t.Fatalf("Create() = %v", err)
				}
				b.mustBe(t, r.Order.ID, EventCreated)
				if _, err := b.Cancel(t.Context(), r.Order.ID, Cancellation{}, WriteOptions{}); err != nil {
					t.Fatalf("Cancel() = %v", err)
				}
				b.mustBe(t, r.Order.ID, EventCreated, EventCancelled)
			})
		}
	})
}

// A batch that cannot be replayed because a CDC generation began in between
// must not lose the order.
func TestService_CreateAcrossAGeneration(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Node.Faults().MustAdd(faults.BatchlogReplayAcrossGeneration(time.Millisecond, 50*time.Millisecond))
	r, err := b.Create(t.Context(), testNewOrder(), WriteOptions{})
	if err != nil {
		t.Fatalf("Create() = %v", err)
	}
	b.mustBe(t, r.Order.ID, EventCreated)
}

func TestService_CreateSameKeyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	ids := map[gocql.UUID]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r, err := b.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: "k"})
			if err != nil {
				t.Errorf("Create() = %v", err)
			}
			mu.Lock()
			ids[r.Order.ID]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Fatalf("one key made orders %v", ids)
	}
	for id := range ids {
		b.mustBe(t, id, EventCreated)
	}
}

func TestService_KeyBelongsToItsRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	var reuse *KeyReuseError
	other := testNewOrder()
	other.Country = "EIRE"
	if _, err := b.Create(t.Context(), other, WriteOptions{IdempotencyKey: "k"}); !errors.As(err, &reuse) || reuse.Operation != opCreate {
		t.Errorf("another body: Create() = %v, want a *KeyReuseError", err)
	}
	if _, err := b.Cancel(t.Context(), first.Order.ID, Cancellation{}, WriteOptions{IdempotencyKey: "k"}); !errors.As(err, &reuse) {
		t.Errorf("another operation: Cancel() = %v, want a *KeyReuseError", err)
	}
	b.mustBe(t, first.Order.ID, EventCreated)

	second := b.mustCreate(t)
	if _, err := b.Cancel(t.Context(), first.Order.ID, Cancellation{}, WriteOptions{IdempotencyKey: "c"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Cancel(t.Context(), second.ID, Cancellation{}, WriteOptions{IdempotencyKey: "c"}); !errors.As(err, &reuse) || reuse.Operation != ChangeCancel.operation() {
		t.Errorf("another order: Cancel() = %v, want a *KeyReuseError", err)
	}
	b.mustBe(t, second.ID, EventCreated)
	// A retry is answered as the first request was.
	r, err := b.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: "k"})
	if err != nil || !r.Replayed || !reflect.DeepEqual(r.Order, first.Order) {
		t.Errorf("retry after the cancellation = %+v, %v, want %+v", r, err, first.Order)
	}
	// Its event has expired: the current order is returned.
	if err := b.Session.Query("DELETE FROM "+outbox.DefaultTableName+" WHERE aggregate_id = ? AND seq = 1", first.Order.ID.String()).Exec(); err != nil {
		t.Fatal(err)
	}
	r, err = b.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: "k"})
	if err != nil || !r.Replayed || r.Order.ID != first.Order.ID || r.Order.Version != 2 || r.Order.Status != StatusCancelled {
		t.Errorf("retry without the event = %+v, %v, want the current order", r, err)
	}
}

// A retry resolves the claim of a key that timed out.
func TestService_ClaimThroughFaults(t *testing.T) {
	t.Parallel()
	for _, decided := range []bool{true, false} {
		for _, count := range []int{1, 3, 0} {
			t.Run(fmt.Sprintf("decided=%v count=%d", decided, count), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				rule := faults.CASTimeout(decided)
				rule.Count, rule.Effect.Delay = count, 0
				b.Node.Faults().MustAdd(rule)
				s := b.Service
				if count == 0 {
					s = b.brief(t)
				}
				r, err := s.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: "k"})
				if count > 0 {
					if err != nil {
						t.Fatalf("Create() = %v", err)
					}
					b.mustBe(t, r.Order.ID, EventCreated)
					return
				}
				if !isRefused(err) {
					t.Fatalf("Create() = %v, want it refused with nothing stored", err)
				}
				b.heal(t)
				if r, err = b.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: "k"}); err != nil || r.Replayed != decided {
					t.Fatalf("Create() again = %+v, %v", r, err)
				}
				b.mustBe(t, r.Order.ID, EventCreated)
			})
		}
	}
}
