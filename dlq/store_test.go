package dlq

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

func TestStore_Lifecycle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	head, next := testDeadLetter("a", 1), testDeadLetter("a", 2)
	next.Status, next.ErrorClass = Blocked, "behind"
	b.mustWrite(t, next)
	b.mustWrite(t, head)

	if got := b.listChains(t, testTable); len(got) != 2 || got[0].EventID != head.EventID || got[1].Status != Blocked {
		t.Fatalf("Chains() = %+v", got)
	}
	l, err := b.Claim(t.Context(), head.EventID, "relay-1", time.Minute)
	if err != nil || string(l.Payload) != string(head.Payload) || !reflect.DeepEqual(l.Headers, head.Headers) {
		t.Fatalf("Claim() = %+v, %v", l, err)
	}
	if _, err := b.Claim(t.Context(), head.EventID, "relay-2", time.Minute); !errors.Is(err, ErrRefused) {
		t.Errorf("a second Claim() = %v, want ErrRefused", err)
	}
	st, err := b.Fail(t.Context(), head.EventID, "relay-1", Failure{Class: "attempts_used", Text: "down", Attempts: 5})
	if err != nil || st != Pending {
		t.Fatalf("Fail() = %s, %v", st, err)
	}
	if l := b.mustRead(t, head.EventID); l.Attempts != 6 || l.Replays != 1 || !l.NextAttempt.Equal(b.clock.at.Add(5*time.Minute)) {
		t.Errorf("after Fail: %+v", l)
	}
	if err := b.Replay(t.Context(), head.EventID, Actor{Name: "eve", Reason: "fixed"}); err != nil {
		t.Fatal(err)
	}
	rs, err := b.Requests(t.Context(), testTable, nil)
	if err != nil || len(rs) != 1 || rs[0].EventID != head.EventID || rs[0].Entry.Status != Pending {
		t.Fatalf("Requests() = %+v, %v", rs, err)
	}
	if err := b.Done(t.Context(), rs[0]); err != nil {
		t.Fatal(err)
	}
	if rs, err := b.Requests(t.Context(), testTable, nil); err != nil || len(rs) != 0 {
		t.Errorf("Requests() after Done = %+v, %v", rs, err)
	}
	if _, err := b.Claim(t.Context(), head.EventID, "relay-1", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := b.Resolve(t.Context(), head.EventID, "relay-1", Outcome{Kind: OutcomeReplayed, Topic: "OrderCreated", Partition: 3, Offset: 17}); err != nil {
		t.Fatal(err)
	}
	if got := b.listChains(t, testTable); len(got) != 1 || got[0].EventID != next.EventID {
		t.Errorf("Chains() after Resolve = %+v", got)
	}
	h, err := b.History(t.Context(), head.EventID)
	if err != nil {
		t.Fatal(err)
	}
	var actions []Action
	for _, c := range h {
		actions = append(actions, c.Action)
	}
	want := []Action{ActionWrite, ActionClaim, ActionFail, ActionReplay, ActionClaim, ActionSettle}
	if !reflect.DeepEqual(actions, want) {
		t.Errorf("history %v, want %v", actions, want)
	}
	if st, err := b.Write(t.Context(), head); err != nil || st != Resolved {
		t.Errorf("Write() again = %s, %v, want resolved", st, err)
	}
	if got := b.listChains(t, testTable); len(got) != 1 {
		t.Errorf("Chains() after Write again = %+v", got)
	}
}
