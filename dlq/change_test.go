package dlq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

// Of many concurrent claims of a dead letter one succeeds, whatever happens to their
// statements.
func TestClaim_OneOfMany(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]faults.Rule{
		"no faults": nil,
		"time-outs": {
			{Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}}, Count: 3, Effect: casFaults["decided"]},
			{Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}}, Count: 3, Effect: casFaults["undecided"]},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id := b.bring(t, Pending)
			for _, r := range rules {
				b.Node.Faults().MustAdd(r)
			}
			var won, lost atomic.Int32
			var wg sync.WaitGroup
			for i := range 8 {
				s := b.another(t)
				wg.Go(func() {
					l, err := s.Claim(t.Context(), id, fmt.Sprint("relay-", i), time.Minute)
					var r *RefusedError
					switch {
					case err == nil && l.ClaimedBy == fmt.Sprint("relay-", i) && len(l.Payload) > 0:
						won.Add(1)
					case errors.As(err, &r) && r.Status == Processing && r.ClaimedBy != "":
						lost.Add(1)
					default:
						t.Errorf("Claim() = %+v, %v", l, err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 || lost.Load() != 7 {
				t.Errorf("%d won and %d lost, want 1 and 7", won.Load(), lost.Load())
			}
			if h := b.mustHistory(t, id); len(h) != 2 {
				t.Errorf("history %+v, want two lines", h)
			}
			b.mustBeListed(t, id)
		})
	}
}

// An operator whose clock is ahead ends the claim of a dead letter whose event is with the
// broker: the event's record resolves it, unless the operator has changed its content.
func TestResolveMany_AfterAnOperatorEndedTheClaim(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change  func(context.Context, *fixture, gocql.UUID) error
		refused bool
	}{
		"replay":  {change: func(ctx context.Context, b *fixture, id gocql.UUID) error { return b.Replay(ctx, id, eve) }},
		"suspend": {change: func(ctx context.Context, b *fixture, id gocql.UUID) error { return b.Suspend(ctx, id, eve) }},
		"discard": {
			change:  func(ctx context.Context, b *fixture, id gocql.UUID) error { return b.Discard(ctx, id, eve) },
			refused: true,
		},
		"edit": {
			change: func(ctx context.Context, b *fixture, id gocql.UUID) error {
				_, err := b.Edit(ctx, id, Edit{Payload: []byte(`{"n":2}`), ContentType: "application/json"}, eve, 0)
				return err
			},
			refused: true,
		},
		"claim": {
			change: func(ctx context.Context, b *fixture, id gocql.UUID) error {
				_, err := b.Claim(ctx, id, "relay-2", time.Minute)
				return err
			},
			refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ctx := t.Context()
			id := b.bring(t, Processing) // by me, for a minute
			claimed := b.mustRead(t, id)
			b.clock.advance(2 * time.Minute)
			if err := tt.change(ctx, b, id); err != nil {
				t.Fatal(err)
			}
			before := b.mustRead(t, id)
			err := b.ResolveMany(ctx, []Settlement{{DeadLetter: claimed, How: Outcome{Kind: OutcomeReplayed, Topic: "T", Partition: 2, Offset: 9}}}, me)[0]
			after := b.mustRead(t, id)
			switch {
			case tt.refused && !errors.Is(err, ErrRefused):
				t.Errorf("ResolveMany() = %v, want ErrRefused", err)
			case tt.refused && after.Status != before.Status:
				t.Errorf("its status is %s, was %s", after.Status, before.Status)
			case !tt.refused && (err != nil || after.Status != Resolved || after.Outcome.Offset != 9):
				t.Errorf("ResolveMany() = %v, then it is %s: %s", err, after.Status, after.Outcome)
			}
		})
	}
}

func TestClaim_RunsOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.bring(t, Processing) // by me, for a minute
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%s = %v, want ErrRefused", what, err)
		}
	}
	b.clock.advance(40 * time.Second)
	if err := b.Extend(ctx, id, me, time.Minute); err != nil {
		t.Fatal(err)
	}
	b.clock.advance(40 * time.Second)
	_, err := b.Claim(ctx, id, "relay-2", time.Minute)
	refused("Claim() of an extended claim", err)
	refused("Extend() by another", b.Extend(ctx, id, "relay-2", time.Minute))
	refused("Resolve() by another", b.Resolve(ctx, id, "relay-2", Outcome{Kind: OutcomeReplayed}))
	_, err = b.Fail(ctx, id, "relay-2", Failure{Class: "x"})
	refused("Fail() by another", err)
	refused("Unclaim() by another", b.Unclaim(ctx, id, "relay-2", ""))

	b.clock.advance(21 * time.Second)
	if _, err := b.Claim(ctx, id, "relay-2", time.Minute); err != nil {
		t.Fatalf("Claim() after the claim expired = %v", err)
	}
	refused("Resolve() by the owner before", b.Resolve(ctx, id, me, Outcome{Kind: OutcomeReplayed}))
	b.clock.advance(time.Hour)
	// No other owner claimed it: its owner's work counts.
	if err := b.Resolve(ctx, id, "relay-2", Outcome{Kind: OutcomeReplayed, Topic: "T", Partition: 2, Offset: 9}); err != nil {
		t.Fatal(err)
	}
	if err := b.Resolve(ctx, id, "relay-2", Outcome{Kind: OutcomeReplayed}); err != nil {
		t.Errorf("Resolve() again = %v", err)
	}
	refused("Resolve() otherwise", b.Resolve(ctx, id, "relay-2", Outcome{Kind: OutcomeFound}))
	l := b.mustRead(t, id)
	if l.Outcome.String() != "replayed: T[2]@9" || !l.ResolvedAt.Equal(b.clock.at) || l.ClaimedBy != "" || !l.NextAttempt.IsZero() {
		t.Errorf("after Resolve: %+v", l)
	}
	if _, err := b.Claim(ctx, gocql.UUID{9}, me, time.Minute); !errors.Is(err, ErrNotFound) {
		t.Errorf("Claim() of nothing = %v, want ErrNotFound", err)
	}
	for _, how := range []OutcomeKind{"", "lost"} {
		if err := b.Resolve(ctx, id, me, Outcome{Kind: how}); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("Resolve(%q) = %v, want the kind named", how, err)
		}
	}
	if _, err := b.Claim(ctx, id, "", time.Minute); err == nil {
		t.Error("Claim() without an owner = nil")
	}
	if err := b.Discard(ctx, id, Actor{}); err == nil {
		t.Error("Discard() without an actor = nil")
	}
}

// Five replays fail, each later than the one before; then people decide.
func TestFail_Delays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.bring(t, Pending)
	fail := func(f Failure) DeadLetter {
		t.Helper()
		if _, err := b.Claim(ctx, id, me, time.Minute); err != nil {
			t.Fatal(err)
		}
		st, err := b.Fail(ctx, id, me, f)
		l := b.mustRead(t, id)
		if err != nil || st != l.Status || l.ErrorClass != f.Class || l.ErrorText != f.Text || l.ErrorCode != f.Code {
			t.Fatalf("Fail() = %s, %v; %+v", st, err, l)
		}
		return l
	}
	for i, d := range []time.Duration{5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour} {
		l := fail(Failure{Class: "attempts_used", Text: "down", Code: "C", Attempts: 5, Chain: []string{"a", "b"}})
		if l.Status != Pending || l.NextAttempt.Sub(b.clock.at) != d || l.Replays != i+1 || l.Attempts != 1+5*(i+1) || l.Strategy != StrategyImmediate {
			t.Errorf("after failure %d: %s, next attempt %s, %d replays, %d attempts", i+1, l.Status, l.NextAttempt, l.Replays, l.Attempts)
		}
		b.clock.advance(time.Hour)
	}
	if l := fail(Failure{Class: "attempts_used", Attempts: 5}); l.Status != Failed || l.Strategy != StrategyManual || !l.NextAttempt.IsZero() {
		t.Errorf("after the fifth: %+v", l)
	}
	if err := b.Replay(ctx, id, eve); err != nil {
		t.Fatal(err)
	}
	if l := fail(Failure{Class: "attempts_used", Attempts: 5}); l.Status != Failed || l.Replays != 6 {
		t.Errorf("after one more that was asked for: %+v", l)
	}
	if err := b.Replay(ctx, id, eve); err != nil {
		t.Fatal(err)
	}
	if l := fail(Failure{Class: "record_too_large", Final: true}); l.Status != Suspended {
		t.Errorf("after a final failure: %+v", l)
	}
	h := b.mustHistory(t, id)
	if last := h[len(h)-1]; last.Outcome != "another attempt cannot help" || last.Why != "record_too_large" {
		t.Errorf("the last line is %+v", last)
	}
	b.mustBeListed(t, id)
}

// A change whose transaction fails is made once or not at all, and its caller learns
// which, unless the database is down for good.
func TestChange_ThroughFaults(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	for _, a := range []Action{ActionClaim, ActionFail, ActionSettle, ActionDiscard, ActionUnblock} {
		from := Processing
		if a == ActionClaim || a == ActionDiscard || a == ActionUnblock {
			from = Pending
		}
		for name, effect := range casFaults {
			for _, count := range counts() {
				t.Run(fmt.Sprintf("%s %s count=%d", a, name, count), func(t *testing.T) {
					t.Parallel()
					b := setup(t)
					id := b.bring(t, from)
					lines := len(b.mustHistory(t, id))
					life, hits := b.trouble(t, "dead_letter_queue", engine.OpCAS, count, effect)
					err := doIn(life, t, b.another(t, patient), id, a)
					if hits() == 0 {
						t.Fatal("nothing was hit")
					}
					if err != nil && count == 1 {
						t.Errorf("%s = %v, with one fault", a, err)
					}
					b.heal(t)
					h, settleErr := b.history(t.Context(), id, b.db.Serial) // completes a pending transaction
					if settleErr != nil {
						t.Fatal(settleErr)
					}
					done := len(h) - lines
					if done > 1 || err == nil && done != 1 {
						t.Errorf("%s = %v, and %d lines in the history", a, err, done)
					}
					l := b.mustRead(t, id)
					if want := transitions[a][from][0]; (l.Status == want) != (done == 1) {
						t.Errorf("%d lines in the history, and it is %s", done, l.Status)
					}
					b.mustShow(t, id)
					if err == nil && count == 1 {
						b.mustBeListed(t, id)
					}
				})
			}
		}
	}
}

// Relays and operators change a few dead letters concurrently, while statements time
// out. Afterwards lists contain each dead letter at its current place.
func TestStore_Storm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []gocql.UUID
	for i := range 6 {
		l := testDeadLetter("a", int64(i+1))
		b.mustWrite(t, l)
		ids = append(ids, l.EventID)
	}
	b.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}}, Probability: 0.05, Effect: casFaults["decided"]})
	b.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}}, Probability: 0.05, Effect: casFaults["undecided"]})
	var wg sync.WaitGroup
	for w := range 8 {
		s := b.another(t)
		owner := fmt.Sprint("relay-", w%3)
		rnd := rand.New(rand.NewPCG(1, uint64(w)))
		wg.Go(func() {
			for range 40 {
				id := ids[rnd.IntN(len(ids))]
				var err error
				switch rnd.IntN(8) {
				case 0, 1:
					// A lease of one nanosecond expires immediately, so that others
					// claim it.
					_, err = s.Claim(t.Context(), id, owner, time.Nanosecond)
				case 2:
					err = s.Unclaim(t.Context(), id, owner, "")
				case 3:
					_, err = s.Fail(t.Context(), id, owner, Failure{Class: fmt.Sprint("class", rnd.IntN(3))})
				case 4:
					err = s.Replay(t.Context(), id, eve)
				case 5:
					err = s.Suspend(t.Context(), id, eve)
				case 6:
					_, err = s.Write(t.Context(), &DeadLetter{Table: testTable, EventID: id, AggregateID: "a", FirstFailedAt: b.clock.at.Add(time.Minute)})
				case 7:
					err = s.List(t.Context(), Filter{}, func(*DeadLetter) error { return nil })
				}
				if err != nil && !errors.Is(err, ErrRefused) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.Node.Faults().Clear()
	for _, id := range ids {
		// A change may have been decided and left undone.
		if _, err := b.read(t.Context(), id, b.stmt.entry, (*DeadLetter).entryDest, b.db.Serial); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range Statuses { // a listing removes stale entries
		b.listAll(t, Filter{Status: []Status{kind}})
	}
	for i := range 3 {
		b.listAll(t, Filter{ErrorClass: fmt.Sprint("class", i)})
	}
	b.listAll(t, Filter{ErrorClass: "record_too_large"})
	b.listAll(t, Filter{EventType: "OrderCreated"})
	b.listAll(t, Filter{Table: testTable})
	b.listAll(t, Filter{Aggregate: "a"})
	for _, id := range ids {
		b.mustBeListed(t, id)
	}
	if got := len(b.listChains(t, testTable)); got != len(ids) {
		t.Errorf("Chains() has %d dead letters, want %d", got, len(ids))
	}
}

// Another process changes the dead letter between the read and the transaction of a
// change: the transaction is not applied, and the change reads again.
func TestChange_LosesToAConcurrentOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.bring(t, Pending)
	other := b.another(t)
	plans := 0
	_, err := b.change(t.Context(), id, ActionClaim, func(l *DeadLetter) (planned, error) {
		if plans++; plans == 1 {
			if err := other.Discard(t.Context(), id, eve); err != nil {
				t.Fatal(err)
			}
		}
		if err := may(ActionClaim, l); err != nil {
			return planned{}, err
		}
		return claimFor(me, b.clock.at.Add(time.Minute)), nil
	})
	if !errors.Is(err, ErrRefused) || plans != 2 {
		t.Errorf("change() = %v after %d plans, want it refused at the second", err, plans)
	}
	if l := b.mustRead(t, id); l.Status != Resolved || l.ClaimedBy != "" {
		t.Errorf("it is %s, claimed by %q", l.Status, l.ClaimedBy)
	}
	if h := b.mustHistory(t, id); len(h) != 2 || h[1].Action != ActionDiscard {
		t.Errorf("history %+v", h)
	}
	// The entries of the change that lost are skipped and removed.
	if got := b.listAll(t, Filter{Status: []Status{Processing}}); len(got) != 0 {
		t.Errorf("List() of processing = %+v", got)
	}
	b.mustBeListed(t, id)
}

// A second job does not make the first one act again.
func TestChange_JobActsOnceBesideAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.writeMany(t, 1, nil)[0]
	first, second := Actor{Name: "a", Job: gocql.TimeUUID()}, Actor{Name: "b", Job: gocql.TimeUUID()}
	for _, by := range []Actor{first, second, first, second, first} {
		if err := b.Replay(ctx, id, by); err != nil {
			t.Fatal(err)
		}
	}
	if h := b.mustHistory(t, id); len(h) != 3 || h[1].Job != first.Job || h[2].Job != second.Job {
		t.Errorf("history %+v, want one line of each job", h)
	}
}
