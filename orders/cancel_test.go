package orders

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

func TestService_Cancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	at := time.Date(2010, 12, 6, 14, 55, 0, 0, time.UTC)
	r, err := b.Cancel(t.Context(), o.ID, Cancellation{CreditNote: "C1", Reason: "late", CancelledAt: &at}, WriteOptions{})
	if err != nil || r.Order.Version != 2 || r.Order.Status != StatusCancelled || !r.Order.CancelledAt.Equal(at) {
		t.Fatalf("Cancel() = %+v, %v", r, err)
	}
	b.mustBe(t, o.ID, EventCreated, EventCancelled)
	got, err := b.Get(t.Context(), o.ID)
	if err != nil || got.CreditNote != "C1" || got.CancelReason != "late" || got.Version != 2 || got.Total.String() != o.Total.String() {
		t.Errorf("Get() = %+v, %v", got, err)
	}
	var cancelled *ConflictError
	if _, err := b.Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{}); !errors.As(err, &cancelled) || cancelled.Order.Version != 2 {
		t.Errorf("second Cancel() = %v, want a *ConflictError with the order", err)
	}
	if _, err := b.Cancel(t.Context(), gocql.UUID{1}, Cancellation{}, WriteOptions{IdempotencyKey: "x"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Cancel() of an unknown order = %v, want ErrNotFound", err)
	}
	var bad *InvalidError
	if _, err := b.Cancel(t.Context(), o.ID, Cancellation{Reason: "\x00"}, WriteOptions{IdempotencyKey: "ü"}); !errors.As(err, &bad) || len(bad.Fields) != 2 {
		t.Errorf("Cancel() with a bad reason and key = %v, want both fields", err)
	}
}

// Of several concurrent cancellations one wins, whatever the outcome of their
// statements.
func TestService_CancelAtOnce(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]faults.Rule{
		"no faults": nil,
		"time-outs": {
			{Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}}, Count: 3, Effect: faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateDecided}},
			{Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}}, Count: 3, Effect: faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			o := b.mustCreate(t)
			for _, r := range rules {
				b.Node.Faults().MustAdd(r)
			}
			var won, lost atomic.Int32
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					_, err := b.Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{})
					var cancelled *ConflictError
					switch {
					case err == nil:
						won.Add(1)
					case errors.As(err, &cancelled):
						lost.Add(1)
					default:
						t.Errorf("Cancel() = %v", err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 || lost.Load() != 7 {
				t.Errorf("%d won and %d lost, want 1 and 7", won.Load(), lost.Load())
			}
			b.mustBe(t, o.ID, EventCreated, EventCancelled)
		})
	}
}

// The conditional insert of a cancellation fails in every way, once, a few
// times or always.
func TestService_CancelThroughFaults(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	// A commit is unavailable at the level of the statement: the round may be decided.
	commit := faults.Unavailable(0, 1)
	commit.Consistency = new(engine.LocalQuorum)
	for name, tt := range map[string]struct {
		effect  faults.Effect
		refused bool
	}{
		"decided":                  {effect: faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateDecided}},
		"undecided":                {effect: faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2)}},
		"applied":                  {effect: faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateApply}},
		"connection lost, applied": {effect: faults.Effect{Disconnect: true, Fate: engine.FateApply}},
		"connection lost":          {effect: faults.Effect{Disconnect: true}},
		"no answer in time":        {effect: faults.Effect{Delay: never}},
		"unavailable":              {effect: faults.Effect{Failure: faults.Unavailable(0, 1)}, refused: true},
		"commit unavailable":       {effect: faults.Effect{Failure: commit, Fate: engine.FateDecided}},
	} {
		for _, count := range []int{1, 0} {
			for _, key := range []string{"", "k"} {
				t.Run(fmt.Sprintf("%s count=%d key=%q", name, count, key), func(t *testing.T) {
					t.Parallel()
					b := setup(t)
					o := b.mustCreate(t)
					// The rule is for the outbox; the claim of a key is tested on its own.
					id := b.Node.Faults().MustAdd(faults.Rule{
						Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}, Table: "outbox_messages"}, Count: count, Effect: tt.effect,
					})
					s := b.another(t, within(tt.effect))
					if count == 0 {
						s = b.brief(t, within(tt.effect))
					}
					r, err := s.Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{IdempotencyKey: key})
					if b.Node.Faults().Hits(id) == 0 {
						t.Fatal("no statement was hit")
					}
					switch {
					case tt.refused:
						if !isRefused(err) {
							t.Fatalf("Cancel() = %v, want it refused with nothing stored", err)
						}
						b.heal(t)
						b.mustBe(t, o.ID, EventCreated)
					case err != nil && !isUnknown(err), err != nil && count == 1:
						t.Fatalf("Cancel() = %v", err)
					case err == nil:
						if r.Order.Status != StatusCancelled {
							t.Errorf("Cancel() = %+v", r)
						}
						b.heal(t)
						b.mustBe(t, o.ID, EventCreated, EventCancelled)
					}
					b.heal(t)
					_, again := b.another(t).Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{IdempotencyKey: key})
					var cancelled *ConflictError
					if again != nil && (key != "" || !errors.As(again, &cancelled)) {
						t.Errorf("Cancel() again = %v", again)
					}
					b.mustBe(t, o.ID, EventCreated, EventCancelled)
				})
			}
		}
	}
}

// A Paxos round that is incomplete across a CDC generation blocks its
// partition. The caller must not receive a wrong answer; an operator resolves
// it.
func TestService_CancelAcrossAGeneration(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	b.Node.Faults().MustAdd(faults.CASAcrossGeneration(time.Millisecond))
	_, err := b.brief(t).Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{})
	if err != nil && !isUnknown(err) {
		t.Errorf("Cancel() = %v, want success or outcome unknown", err)
	}
	if _, err := b.Get(t.Context(), o.ID); err != nil {
		t.Errorf("Get() = %v", err)
	}
}
