package sim

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Rows are minutes and hours late, with a restart in between, and numbers are omitted.
func TestLate_EveryKind(t *testing.T) {
	seen := simulate(t, 12, nil, func(w *world) {
		time.Sleep(20 * time.Minute)
		for i, k := range lateKinds {
			end := k.begin(rand.New(rand.NewPCG(uint64(i), 0)), w)
			time.Sleep(15 * time.Minute)
			end()
		}
	})
	wantOnce(t, seen)
}
