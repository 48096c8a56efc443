package dlq

import (
	"errors"
	"testing"
	"time"
)

// With a closed fence no dead letter is written or changed, no request is removed, and
// nothing is retried.
func TestStore_WritesNothingBehindTheFence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lost := errors.New("the shard is lost")
	f := new(testFence)
	own := b.another(t, WithFence(f))
	there, late := testDeadLetter("a", 1), testDeadLetter("b", 1)
	if _, err := own.Write(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	if err := b.Replay(t.Context(), there.EventID, Actor{Name: "eve", Reason: "fixed"}); err != nil {
		t.Fatal(err)
	}
	asked, err := own.Requests(t.Context(), testTable, nil)
	if err != nil || len(asked) != 1 {
		t.Fatalf("Requests() = %+v, %v", asked, err)
	}
	before := b.mustRead(t, there.EventID)

	f.err = lost
	_, writeErr := own.Write(t.Context(), late)
	_, claimErr := own.Claim(t.Context(), there.EventID, "relay-1", time.Minute)
	for what, err := range map[string]error{"Write": writeErr, "Claim": claimErr, "Done": own.Done(t.Context(), asked...)} {
		if !errors.Is(err, lost) {
			t.Errorf("%s() behind the fence: %v, want %v", what, err, lost)
		}
	}
	if _, err := b.Read(t.Context(), late.EventID); !errors.Is(err, ErrNotFound) {
		t.Errorf("the late dead letter: %v, want ErrNotFound", err)
	}
	if l := b.mustRead(t, there.EventID); l.Version != before.Version || l.Status != before.Status {
		t.Errorf("the dead letter that was there is %s of version %d, want %s of %d", l.Status, l.Version, before.Status, before.Version)
	}
	if asked, err = b.Requests(t.Context(), testTable, nil); err != nil || len(asked) != 1 {
		t.Errorf("Requests() = %+v, %v, want the one there was", asked, err)
	}
}

// testFence is a Fence that err closes.
type testFence struct{ err error }

func (f *testFence) Check() error { return f.err }
