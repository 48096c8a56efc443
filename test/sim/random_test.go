package sim

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// regressions are seeds that once found something. They are always tried.
var regressions = []uint64{}

// Everything goes wrong at random, and at the same time.
//
// SIM_SEED tries one seed, SIM_RUNS so many new ones.
func TestRandom(t *testing.T) {
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			p := newPlan(seed)
			t.Logf("SIM_SEED=%d go test ./test/sim -run TestRandom\n%s", seed, p)
			simulate(t, seed, p.settings, func(w *world) {
				w.traffic(500, planned)
				p.carryOut(w)
			})
		})
	}
}

func seeds(t *testing.T) []uint64 {
	t.Helper()
	number := func(name string) (uint64, bool) {
		text := os.Getenv(name)
		if text == "" {
			return 0, false
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n, true
	}
	if seed, ok := number("SIM_SEED"); ok {
		return []uint64{seed}
	}
	runs := uint64(5)
	if testing.Short() {
		runs = 2
	}
	// The same few seeds each time keep CI calm; looking for more is for people.
	first := uint64(1000)
	if n, ok := number("SIM_RUNS"); ok {
		runs, first = n, uint64(time.Now().UnixMilli())*1000
	}
	out := regressions
	for i := range runs {
		out = append(out, first+i)
	}
	return out
}
