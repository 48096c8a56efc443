package sim

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Operators whose clocks are minutes wrong change dead letters and request repairs of
// missing events, while the broker fails repeatedly and relays crash: each event is
// published once, in order, or is a dead letter that an operator ended.
func TestOperators_WithWrongClocks(t *testing.T) {
	seen := simulate(t, 21, func(s *settings) { s.relay.SpillLimit = 5 }, func(w *world) {
		w.traffic(40, 90*time.Minute)
		stop := findKind("operator with a wrong clock").begin(rand.New(rand.NewPCG(w.seed, 'o')), w)
		for range 4 {
			time.Sleep(5 * time.Minute)
			w.net.cut(broker)
			time.Sleep(15 * time.Minute)
			w.net.mend(broker)
			time.Sleep(time.Minute)
			w.crashRelay()
			w.startRelay()
		}
		stop()
	})
	wantOnce(t, seen)
	if seen.asked == 0 || seen.deadLetters == 0 {
		t.Errorf("%d requested repairs and %d dead letters, want both positive", seen.asked, seen.deadLetters)
	}
}
