package swept

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// An aggregate left by the tail reader is recorded until the sweep reader has read it,
// and at most maxLeft of them.
func TestTracker_RemembersABoundedNumber(t *testing.T) {
	t.Parallel()
	s := New(false, time.Millisecond)
	for i := range 3 * maxLeft {
		s.Leave(relaytest.EventID(i))
	}
	if n := len(s.mu.left); n > maxLeft {
		t.Errorf("%d aggregates are recorded, want at most %d", n, maxLeft)
	}
	other := relaytest.EventID(3 * maxLeft)
	if c := s.Cause(other, 5000); c != beforeStart {
		t.Errorf("Cause() = %s before the tail reader has read, want before_start", c)
	}
	s.Began(time.UnixMicro(5000))
	for written, want := range map[int64]Cause{3999: beforeStart, 4001: Late} {
		if c := s.Cause(other, written); c != want {
			t.Errorf("Cause() = %s of a row written at %d, want %s", c, written, want)
		}
	}
	last := relaytest.EventID(3*maxLeft - 1)
	if c := s.Cause(last, 0); c != Left {
		t.Errorf("Cause() = %s, want left", c)
	}
	if c := s.Cause(last, 0); c == Left {
		t.Error("an aggregate remains recorded as left")
	}
	if c := New(true, time.Millisecond).Cause(last, 0); c != TailOff {
		t.Errorf("Cause() = %s without a tail reader, want tail_off", c)
	}
}
