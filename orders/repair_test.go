package orders

import (
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A process may fail after each step of a change. These tests execute the steps
// before the failure with the store of the service; then another process
// continues.

func TestCrash_AfterTheKeyWasClaimed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := testNewOrder()
	ctx, cancel := b.detach(t.Context())
	defer cancel()
	id, err := b.claim(ctx, WriteOptions{IdempotencyKey: "k"}, opCreate, n, b.newIdentity(outbox.NewID().UUID()))
	if err != nil || id.retried {
		t.Fatalf("claim() = %+v, %v", id, err)
	}
	r, err := b.another(t).Create(t.Context(), n, WriteOptions{IdempotencyKey: "k"})
	if err != nil || r.Order.ID != id.orderID || r.Order.EventID != id.eventID || !r.Order.CreatedAt.Equal(id.createdAt) || !r.Replayed {
		t.Fatalf("Create() = %+v, %v, want the order of %+v", r, err, id)
	}
	b.mustBe(t, id.orderID, EventCreated)
}

func TestCrash_BeforeTheAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.another(t).Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: "k"})
	if err != nil || again.Order.ID != first.Order.ID || !again.Replayed {
		t.Fatalf("Create() again = %+v, %v", again, err)
	}
	b.mustBe(t, first.Order.ID, EventCreated)

	cancelled, err := b.Cancel(t.Context(), first.Order.ID, Cancellation{}, WriteOptions{IdempotencyKey: "c"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.another(t).Cancel(t.Context(), first.Order.ID, Cancellation{}, WriteOptions{IdempotencyKey: "c"})
	if err != nil || !r.Replayed || r.Order.EventID != cancelled.Order.EventID {
		t.Fatalf("Cancel() again = %+v, %v", r, err)
	}
	b.mustBe(t, first.Order.ID, EventCreated, EventCancelled)
}

// Half of a batch: the order's row without its event.
func TestCrash_OrderWithoutEvent(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(t *testing.T, s *Service, id gocql.UUID) error{
		"read": func(t *testing.T, s *Service, id gocql.UUID) error {
			_, err := s.Get(t.Context(), id)
			return err
		},
		"cancelled": func(t *testing.T, s *Service, id gocql.UUID) error {
			_, err := s.Cancel(t.Context(), id, Cancellation{}, WriteOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			o := testOrder(t)
			o.CreatedAt, o.UpdatedAt = millis(time.Now()), millis(time.Now())
			if err := b.store.apply(t.Context(), &o); err != nil {
				t.Fatal(err)
			}
			// A reader does nothing while the writer may be alive.
			if got, err := b.Get(t.Context(), o.ID); err != nil || got.Version != 1 {
				t.Fatalf("Get() = %+v, %v", got, err)
			}
			if s := b.readStored(t, o.ID); len(s.events) != 0 {
				t.Fatalf("a fresh order was repaired: %+v", s)
			}
			late := b.another(t, func(c *Config) { c.Clock = world.Clock(func() time.Time { return time.Now().Add(time.Hour) }) })
			if err := then(t, late, o.ID); err != nil {
				t.Fatal(err)
			}
			if name == "read" {
				b.mustBe(t, o.ID, EventCreated)
			} else {
				b.mustBe(t, o.ID, EventCreated, EventCancelled)
			}
			if got := b.readStored(t, o.ID).events[0].ID.UUID(); got != o.EventID {
				t.Errorf("event id = %s, want the order's own %s", got, o.EventID)
			}
		})
	}
}

// The outbox rows of an old order have expired; its event must not be written
// again.
func TestRepair_LeavesOldOrdersAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := testOrder(t)
	o.CreatedAt = millis(time.Now().Add(-8 * 24 * time.Hour))
	if err := b.store.apply(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(t.Context(), o.ID); err != nil {
		t.Fatal(err)
	}
	if s := b.readStored(t, o.ID); len(s.events) != 0 {
		t.Errorf("stored %+v, want no event", s)
	}
	// Its cancellation still gets the next number.
	r, err := b.Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{})
	if err != nil || r.Order.Version != 2 {
		t.Fatalf("Cancel() = %+v, %v", r, err)
	}
	if s := b.readStored(t, o.ID); len(s.events) != 1 || s.events[0].Sequence != 2 {
		t.Errorf("stored %+v, want the cancellation at seq 2", s)
	}
}

// The other half: the event without the order row.
func TestCrash_EventWithoutOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := testOrder(t)
	e, err := o.event(EventCreated, nil)
	if err != nil {
		t.Fatal(err)
	}
	if applied, err := b.appendEvent(t, e); err != nil || !applied {
		t.Fatal(applied, err)
	}
	got, err := b.Get(t.Context(), o.ID)
	if err != nil || got.ID != o.ID {
		t.Fatalf("Get() = %+v, %v", got, err)
	}
	b.mustBe(t, o.ID, EventCreated)
}

// A cancellation whose event is decided but not applied to the order.
func TestCrash_BetweenEventAndOrder(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"read", "cancelled by another", "retried with its key"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			o := b.mustCreate(t)
			ctx, cancel := b.detach(t.Context())
			defer cancel()
			me, err := b.claim(ctx, WriteOptions{IdempotencyKey: "c"}, ChangeCancel.operation(), newChangeRequest(o.ID, Cancellation{}, WriteOptions{}), b.newIdentity(o.ID))
			if err != nil {
				t.Fatal(err)
			}
			dead := cancelOrder(o, Cancellation{}, me)
			e, err := dead.event(EventCancelled, nil)
			if err != nil {
				t.Fatal(err)
			}
			if applied, err := b.appendEvent(t, e); err != nil || !applied {
				t.Fatal(applied, err)
			}
			other := b.another(t)
			var conflict *ConflictError
			switch step {
			case "read":
				if got, err := other.Get(t.Context(), o.ID); err != nil || got.Status != StatusCancelled || got.Version != 2 {
					t.Errorf("Get() = %+v, %v, want it cancelled", got, err)
				}
			case "cancelled by another":
				if _, err := other.Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{}); !errors.As(err, &conflict) {
					t.Errorf("Cancel() = %v, want a *ConflictError", err)
				}
			case "retried with its key":
				r, err := other.Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{IdempotencyKey: "c"})
				if err != nil || r.Order.EventID != me.eventID || !r.Replayed {
					t.Errorf("Cancel() = %+v, %v, want success", r, err)
				}
			}
			b.mustBe(t, o.ID, EventCreated, EventCancelled)
		})
	}
}

// The row cannot be written just then: the decided event still counts.
func TestService_CancelHoldsThoughTheRowCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	b.fault(engine.OpWrite, 0, faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1)})
	r, err := b.brief(t).Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{})
	if err != nil || r.Order.Status != StatusCancelled {
		t.Fatalf("Cancel() = %+v, %v, want success", r, err)
	}
	// Readers return the cancelled order while the row is stale, too.
	if got, err := b.Get(t.Context(), o.ID); err != nil || got.Status != StatusCancelled {
		t.Errorf("Get() = %+v, %v, want it cancelled", got, err)
	}
	b.heal(t)
	if got, err := b.Get(t.Context(), o.ID); err != nil || got.Status != StatusCancelled {
		t.Errorf("Get() = %+v, %v, want it cancelled", got, err)
	}
	b.mustBe(t, o.ID, EventCreated, EventCancelled)
}

// A late copy of the first batch must not bring a cancelled order back.
func TestService_LateBatchDoesNotUndoACancellation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fault(engine.OpLoggedBatch, 1, faults.Effect{
		Failure: faults.WriteTimeout(faults.Batch, 0, 1), Fate: engine.FateLater, Later: []time.Duration{500 * time.Millisecond},
	})
	o := b.mustCreate(t)
	if _, err := b.Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.awaitLogged(t, o.ID, 3) // the replay, and two that were answered
	if got, err := b.Get(t.Context(), o.ID); err != nil || got.Status != StatusCancelled || got.Version != 2 {
		t.Errorf("Get() = %+v, %v, want it cancelled", got, err)
	}
	b.mustBe(t, o.ID, EventCreated, EventCancelled)
}

// Nor must a delayed batch of a request with the same key.
func TestService_SlowRetryDoesNotUndoACancellation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	if _, err := b.Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	e, err := o.event(EventCreated, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.storeNew(t.Context(), &o, e, true); err != nil {
		t.Fatal(err)
	}
	if got := b.readStored(t, o.ID).order; got.Status != StatusCancelled || got.Version != 2 {
		t.Errorf("order = %+v, want it cancelled", got)
	}
	b.mustBe(t, o.ID, EventCreated, EventCancelled)
}
