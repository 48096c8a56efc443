package sim

import (
	"testing"
	"time"
)

// Order services with different clocks write the events of one order, and the database's
// clock, which conditional writes use, is wrong too.
func TestClock_Skew(t *testing.T) {
	for _, node := range []time.Duration{0, 4 * time.Second, -30 * time.Second} {
		t.Run(node.String(), func(t *testing.T) {
			seen := simulate(t, 12, func(s *settings) {
				// The database rejects timestamps more than 5 s ahead of its own.
				s.skews = []time.Duration{0, 4 * time.Second, -20 * time.Second, -80 * time.Second, time.Minute}
				s.node.Now = func() time.Time { return time.Now().Add(node) }
			}, func(w *world) {
				w.traffic(400, time.Hour)
				time.Sleep(30 * time.Minute)
				w.newStreams()
				time.Sleep(30 * time.Minute)
			})
			wantOnce(t, seen)
		})
	}
}
