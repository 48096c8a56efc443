package dlq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

const me = "relay-1"

var eve = Actor{Name: "eve", Reason: "because"}

// bring returns a dead letter with the status in which a test begins.
func (b *fixture) bring(t *testing.T, to Status) gocql.UUID {
	t.Helper()
	ctx := t.Context()
	l := testDeadLetter("a", 1)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	switch to {
	case Blocked, Suspended:
		l.Status = to
	}
	b.mustWrite(t, l)
	id := l.EventID
	claim := func() {
		t.Helper()
		_, err := b.Claim(ctx, id, me, time.Minute)
		must(err)
	}
	switch to {
	case Processing:
		claim()
	case Failed:
		for range DefaultMaxReplays {
			claim()
			_, err := b.Fail(ctx, id, me, Failure{Class: "attempts_used"})
			must(err)
		}
	case Resolved, Archived:
		claim()
		must(b.Resolve(ctx, id, me, Outcome{Kind: OutcomeReplayed}))
		if to == Archived {
			must(b.Archive(ctx, id, eve))
		}
	}
	if l := b.mustRead(t, id); l.Status != to {
		t.Fatalf("the test's dead letter is %s, want %s", l.Status, to)
	}
	return id
}

// do does an action as its usual caller does.
func (b *fixture) do(t *testing.T, id gocql.UUID, a Action) error {
	t.Helper()
	return doIn(t.Context(), t, b.Store, id, a)
}

// doIn does it in a process that may die.
func doIn(ctx context.Context, t *testing.T, s *Store, id gocql.UUID, a Action) error {
	t.Helper()
	switch a {
	case ActionClaim:
		_, err := s.Claim(ctx, id, me, time.Minute)
		return err
	case ActionExtend:
		return s.Extend(ctx, id, me, time.Hour)
	case ActionUnclaim:
		return s.Unclaim(ctx, id, me, "the breaker opened")
	case ActionFail:
		_, err := s.Fail(ctx, id, me, Failure{Class: "attempts_used"})
		return err
	case ActionSettle:
		return s.ResolveMany(ctx, []Settlement{{DeadLetter: DeadLetter{EventID: id}, How: Outcome{Kind: OutcomeFound}}}, me)[0]
	case ActionReplay:
		return s.Replay(ctx, id, eve)
	case ActionDiscard:
		return s.Discard(ctx, id, eve)
	case ActionUnblock:
		return s.Unblock(ctx, id, eve)
	case ActionSuspend:
		return s.Suspend(ctx, id, eve)
	case ActionResolve:
		return s.ResolveByHand(ctx, id, eve)
	case ActionReopen:
		return s.Reopen(ctx, id, eve)
	case ActionEdit:
		_, err := s.Edit(ctx, id, Edit{Payload: []byte(`{"n":2}`), ContentType: "application/json"}, eve, 0)
		return err
	case ActionRedirect:
		return s.Redirect(ctx, id, "Elsewhere", eve)
	case ActionSet:
		return s.Set(ctx, id, Labels{Priority: new(7), AddTags: []string{"night"}}, eve)
	case ActionArchive:
		return s.Archive(ctx, id, eve)
	case ActionPurge:
		return s.Purge(ctx, id, Purge{Force: true}, eve)
	case ActionRestore:
		return s.Restore(ctx, id, nil, eve)
	}
	t.Fatalf("no test does %q", a)
	return nil
}

// Every action from every status: those in the table lead to their next status and are
// in the history, the others are refused and change nothing.
func TestTransitions_Walk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, a := range Actions {
		for _, from := range Statuses {
			t.Run(fmt.Sprintf("%s from %s", a, from), func(t *testing.T) {
				id := b.bring(t, from)
				if a == ActionReopen && from == Resolved { // without publishing it
					id = b.bring(t, Suspended)
					if err := b.Discard(t.Context(), id, eve); err != nil {
						t.Fatal(err)
					}
				}
				byOperator := slices.Contains(OperatorActions, a)
				if from == Processing && byOperator {
					// No other owner can claim it …
					var r *RefusedError
					if err := b.do(t, id, a); !errors.As(err, &r) || r.Status != Processing || len(transitions[a][from]) > 0 && r.ClaimedBy != me {
						t.Fatalf("with a claim in force: %v, want it refused", err)
					}
					b.clock.at = b.clock.at.Add(10 * time.Minute) // whose clock is ahead neither,
					if err := b.do(t, id, a); !errors.As(err, &r) || r.Status != Processing {
						t.Fatalf("with a claim in force by the clock of the database: %v, want it refused", err)
					}
					b.clock.at = b.clock.at.Add(-10 * time.Minute)
					b.clock.advance(time.Minute + time.Millisecond) // … until the claim has expired.
				}
				before, lines := b.mustRead(t, id), b.mustHistory(t, id)
				err := b.do(t, id, a)
				after := b.mustRead(t, id)
				to := transitions[a][from]
				if len(to) == 0 {
					var r *RefusedError
					if !errors.As(err, &r) || r.Status != from || r.Action != a || r.EventID != id {
						t.Errorf("error %v, want a *RefusedError with %s", err, from)
					}
					if after.Version != before.Version || after.Status != from {
						t.Errorf("a refused action made it %s, version %d", after.Status, after.Version)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if after.Status != to[0] {
					t.Errorf("it is %s, want %s", after.Status, to[0])
				}
				if after.Version == before.Version {
					if a != ActionSuspend || from != Suspended {
						t.Error("nothing was changed")
					}
					return
				}
				if claimed := after.ClaimedBy != "" || !after.ClaimedUntil.IsZero(); claimed != (after.Status == Processing) {
					t.Errorf("%s, and claimed by %q until %s", after.Status, after.ClaimedBy, after.ClaimedUntil)
				}
				if a == ActionPurge {
					lines = nil // it leaves its own line alone
				}
				added := b.mustHistory(t, id)[len(lines):]
				if a == ActionExtend {
					if len(added) != 0 {
						t.Errorf("history has %+v", added)
					}
					return
				}
				who, why := me, ""
				if byOperator {
					who, why = eve.Name, eve.Reason
				}
				if len(added) != 1 || added[0].Action != a || added[0].From != from || added[0].To != to[0] || added[0].By != who ||
					why != "" && added[0].Why != why || !added[0].At.Equal(b.clock.at) || added[0].Version != after.Version {
					t.Errorf("history has %+v, want %s by %s from %s to %s", added, a, who, from, to[0])
				}
				b.mustBeListed(t, id)
			})
		}
	}
}

// Reopening takes back what an operator settled without publishing it, and nothing else.
func TestReopen_TakesADiscardBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, settle := range []func(context.Context, gocql.UUID, Actor) error{b.Discard, b.ResolveByHand} {
		id := b.bring(t, Failed)
		before := b.mustRead(t, id)
		if err := settle(ctx, id, eve); err != nil {
			t.Fatal(err)
		}
		if err := b.Reopen(ctx, id, eve); err != nil {
			t.Fatal(err)
		}
		l := b.mustRead(t, id)
		if l.Status != Suspended || !l.Unblocked || l.Outcome != (Outcome{}) || !l.ResolvedAt.IsZero() || !bytes.Equal(l.Payload, before.Payload) || len(l.Payload) == 0 {
			t.Errorf("it is %s, unblocked %v, outcome %+v, resolved at %s, with %d bytes of payload", l.Status, l.Unblocked, l.Outcome, l.ResolvedAt, len(l.Payload))
		}
		// It is settled again like any other, and archived with its latest outcome.
		if err := b.Discard(ctx, id, eve); err != nil {
			t.Fatal(err)
		}
		if l := b.mustRead(t, id); l.Status != Resolved || l.Outcome.Kind != OutcomeDiscarded {
			t.Errorf("discarded again it is %s by %q", l.Status, l.Outcome.Kind)
		}
	}
	published := b.bring(t, Resolved)
	if err := b.Reopen(ctx, published, eve); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "its event is in its topic") {
		t.Errorf("Reopen() of a published one = %v, want it refused with the reason", err)
	}
	for _, kind := range OutcomeKinds {
		n := 0
		if err := b.List(ctx, Filter{Outcome: kind}, func(l *DeadLetter) error {
			if n++; l.Outcome.Kind != kind {
				t.Errorf("%s: listed %s, resolved by %q", kind, l.EventID, l.Outcome.Kind)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := map[OutcomeKind]int{OutcomeDiscarded: 2, OutcomeReplayed: 1}[kind]; n != want {
			t.Errorf("%s: %d are listed, want %d", kind, n, want)
		}
	}
}

func (b *fixture) mustHistory(t testing.TB, id gocql.UUID) []Change {
	t.Helper()
	h, err := b.History(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// mustBeListed checks that lists and chain contain the dead letter at its current place
// only.
func (b *fixture) mustBeListed(t testing.TB, id gocql.UUID) {
	t.Helper()
	l := b.mustRead(t, id)
	want := make(map[listKey]bool)
	for _, f := range listKeys(&l) {
		want[f] = true
	}
	got := make(map[listKey]int)
	var f listKey
	var bucket, at time.Time
	var event gocql.UUID
	iter := b.Session.Query("SELECT kind, value, bucket, first_failed_at, event_id FROM dead_letter_lookups").Iter()
	for iter.Scan(&f.kind, &f.value, &bucket, &at, &event) {
		if event == id {
			got[f]++
			if !at.Equal(l.FirstFailedAt) || !bucket.Equal(f.bucketAt(at)) {
				t.Errorf("%s %s has it at %s in bucket %s, it first failed at %s", f.kind, f.value, at, bucket, l.FirstFailedAt)
			}
		}
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	for f := range want {
		if got[f] != 1 {
			t.Errorf("a %s dead letter is %d times on the list of %s %s, want once", l.Status, got[f], f.kind, f.value)
		}
	}
	for f := range got {
		if !want[f] {
			t.Errorf("a %s dead letter is on the list of %s %s", l.Status, f.kind, f.value)
		}
	}
	chain, err := b.Chain(t.Context(), l.Table, l.AggregateID)
	if err != nil {
		t.Fatal(err)
	}
	if in := slices.ContainsFunc(chain, func(e ChainEntry) bool { return e.EventID == id }); in != l.Status.Open() {
		t.Errorf("a %s dead letter: in its chain %v", l.Status, in)
	}
}

// An action and the status that it sets share a word, so that one implies the other for an
// operator.
func TestTransitions_StatusIsNamedByItsAction(t *testing.T) {
	t.Parallel()
	for action, want := range map[Action]Status{
		ActionSuspend: Status(ActionSuspend) + "ed", ActionResolve: Status(ActionResolve) + "d", ActionArchive: Status(ActionArchive) + "d",
	} {
		for from, to := range transitions[action] {
			if to[0] != want {
				t.Errorf("%s leads from %s to %s, want %s", action, from, to[0], want)
			}
		}
	}
}
