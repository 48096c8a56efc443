package sim

import (
	"testing"
	"time"
)

// Hints are lost, repeated, late and corrupted. Delivered hints make the relay read
// immediately instead of every 20 s; the others have no effect.
func TestHints_Unreliable(t *testing.T) {
	seen := simulate(t, 21, func(s *settings) { s.hints = true }, func(w *world) {
		w.traffic(300, time.Hour)
		time.Sleep(time.Hour)
		w.tap.mu.Lock()
		defer w.tap.mu.Unlock()
		quick := 0
		for _, r := range w.tap.records {
			if r.at.Sub(r.CreatedAt) < time.Second {
				quick++
			}
		}
		if quick < len(w.tap.records)/2 || quick > len(w.tap.records)*19/20 {
			t.Errorf("%d of %d events were published within a second, want most but not all", quick, len(w.tap.records))
		}
	})
	wantOnce(t, seen)
}
