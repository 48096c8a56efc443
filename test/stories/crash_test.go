package stories

import (
	"fmt"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/sim"
)

// The relay crashes in the middle of 100 events and restarts after two seconds.
// It resumes from its checkpoint and from the topics, and each event is
// published once.
func TestStory_Crash(t *testing.T) {
	sim.Tell(t, func(s *sim.Story) {
		const all = 100
		var crashed time.Duration
		for i := range all {
			if _, err := s.Place(fmt.Sprint(536365 + i)); err != nil {
				t.Fatalf("Place() error = %v, want none: orders do not depend on the relay", err)
			}
			s.Wait(20 * time.Millisecond)
			if i == all/2 {
				s.KillRelay()
				crashed = s.Now()
			}
		}
		before := s.Published()
		if before == 0 || before > all/2+1 {
			t.Fatalf("%d of %d events were published before the crash, want about half", before, all)
		}
		s.Wait(crashed + 2*time.Second - s.Now())
		s.StartRelay()
		for s.Published() < all && s.Now()-crashed < time.Minute {
			s.Wait(100 * time.Millisecond)
		}
		if back := s.Now() - crashed; back > 10*time.Second {
			t.Errorf("all events are published %s after the crash, want a few seconds", back)
		} else {
			t.Logf("%d events before the crash, all %s after it", before, back)
		}
		s.Wait(10 * time.Minute) // and the sweep reader has read them all again
		if n := s.Published(); n != all {
			t.Errorf("%d events are published, %d before the crash, want %d in all, each once", n, before, all)
		}
	})
}
