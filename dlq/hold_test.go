package dlq

import (
	"strings"
	"testing"
	"time"
)

func TestHolds_ListWhatADeadLetterWaitsFor(t *testing.T) {
	t.Parallel()
	s := setup(t)
	now := time.Now().UTC().Truncate(time.Millisecond)
	l := testDeadLetter("a", 1)
	l.Rule, l.NextAttempt, l.Strategy = "brokers", now.Add(-time.Second), StrategyConditional
	l.FailureKey = "refused/X/1"
	if _, err := s.Write(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	stored, err := s.Read(t.Context(), l.EventID)
	if err != nil || stored.Rule != "brokers" || stored.FailureKey != "refused/X/1" || stored.Strategy != StrategyConditional {
		t.Fatalf("Read() = %+v, %v, want the written one", stored, err)
	}
	for _, h := range []Hold{
		{Rule: "others", Reason: "not this one"},
		{Rule: "brokers", FailureKey: "refused/Y/1", Reason: "not this one either"},
		{Rule: "brokers", FailureKey: "refused/X/1", Reason: "cpu is at 93 %, above 80 %", Since: now},
	} {
		if err := s.SetHold(t.Context(), testTable, h); err != nil {
			t.Fatal(err)
		}
	}
	holds, err := s.Holds(t.Context(), testTable)
	if err != nil || len(holds) != 3 {
		t.Fatalf("Holds() = %+v, %v, want three", holds, err)
	}
	if got := stored.WaitsFor(holds, now); got != "cpu is at 93 %, above 80 %" {
		t.Errorf("WaitsFor() = %q, want the reason of its hold", got)
	}
	if err := s.DropHold(t.Context(), testTable, Hold{Rule: "brokers", FailureKey: "refused/X/1"}); err != nil {
		t.Fatal(err)
	}
	if holds, err = s.Holds(t.Context(), testTable); err != nil || len(holds) != 2 {
		t.Fatalf("Holds() after DropHold() = %+v, %v, want two", holds, err)
	}
	if got := stored.WaitsFor(holds, now); got != "its turn" {
		t.Errorf("WaitsFor() = %q, want its turn", got)
	}
	stored.NextAttempt = now.Add(time.Hour)
	if got := stored.WaitsFor(holds, now); !strings.HasPrefix(got, "its time, ") {
		t.Errorf("WaitsFor() = %q, want its time", got)
	}
}

// A dead letter that fails with the same error repeatedly is not retried for ever, and
// contains the reason.
func TestFail_TheSameErrorEndsTheLoop(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		texts   []string
		want    Status
		waiting string
	}{
		"the same three times": {
			[]string{"event 1 refused", "event 2 refused"}, Suspended, "the same error 3 times: refused: event 2 refused",
		},
		"another between": {[]string{"event 1 refused", "no leader"}, Pending, ""},
		"replays used up": {
			[]string{"a", "b", "b", "b", "b"}, Failed, "5 replays failed, the same error 4 times: refused: b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			l := testDeadLetter("a", 1)
			l.ErrorClass, l.ErrorCode, l.ErrorText = "refused", "", "event 0 refused"
			if _, err := s.Write(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			limit := 3
			if len(tt.texts) > 3 {
				limit = 0
			}
			var status Status
			for _, text := range tt.texts {
				if _, err := s.Claim(t.Context(), l.EventID, me, time.Minute); err != nil {
					t.Fatal(err)
				}
				var err error
				if status, err = s.Fail(t.Context(), l.EventID, me, Failure{Class: "refused", Text: text, SameError: limit}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Read(t.Context(), l.EventID)
			if err != nil || status != tt.want || got.Status != tt.want || got.Waiting != tt.waiting {
				t.Fatalf("after %q the dead letter is %s, waiting %q, error %v; want %s, %q", tt.texts, got.Status, got.Waiting, err, tt.want, tt.waiting)
			}
			if tt.waiting == "" {
				return
			}
			history, err := s.History(t.Context(), l.EventID)
			if err != nil || history[len(history)-1].Outcome != tt.waiting {
				t.Errorf("History() ends with %+v, %v, want the reason", history[len(history)-1], err)
			}
			if w := got.WaitsFor(nil, time.Now()); w != "an operator: "+tt.waiting {
				t.Errorf("WaitsFor() = %q", w)
			}
		})
	}
}

func TestFailureKey_EqualErrors(t *testing.T) {
	t.Parallel()
	a := FailureKey("attempts_used", "NOT_LEADER", "event 3f8c-1 to 10.0.0.1:9092: not the leader")
	if b := FailureKey("attempts_used", "NOT_LEADER", "event 77aa-2 to 10.0.0.2:9092: not the leader"); a != b {
		t.Errorf("keys %q and %q of errors that differ in numbers", a, b)
	}
	for _, b := range []string{
		FailureKey("attempts_used", "", "event 3f8c-1 to 10.0.0.1:9092: not the leader"),
		FailureKey("refused", "NOT_LEADER", "event 3f8c-1 to 10.0.0.1:9092: not the leader"),
		FailureKey("attempts_used", "NOT_LEADER", "event 3f8c-1 to 10.0.0.1:9092: too large"),
	} {
		if a == b {
			t.Errorf("the same key %q for other errors", a)
		}
	}
}

// The history contains the skipped event and the number of unblocked dead letters.
func TestOperate_RecordsTheSkippedEvent(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for seq := range int64(4) {
		l := testDeadLetter("a", seq+1)
		if seq > 0 {
			l.Status = Blocked
		}
		if _, err := s.Write(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	chain, err := s.Chain(t.Context(), testTable, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Unblock(t.Context(), chain[0].EventID, Actor{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Discard(t.Context(), chain[1].EventID, Actor{Name: "ann", Reason: "stale"}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"seq 1 of a is passed by later events; dead letters behind it that are unblocked: 3", "seq 2 of a is never published; dead letters behind it that are unblocked: 2"} {
		history, err := s.History(t.Context(), chain[i].EventID)
		if err != nil || !strings.Contains(history[len(history)-1].Outcome, want) {
			t.Errorf("History() = %+v, %v, want it to end with %q", history, err, want)
		}
	}
}
