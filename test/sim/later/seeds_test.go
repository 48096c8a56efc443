package later

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// A year with everything that can go wrong, once for each seed.
func TestSeeds(t *testing.T) {
	first, n := number(t, "LATER_FIRST", 1), number(t, "LATER_SEEDS", 50)
	if testing.Short() {
		n = min(n, 5)
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("again: LATER_FIRST=%d LATER_SEEDS=1 go test ./test/sim/later -run TestSeeds -count 20", seed)
				}
			}()
			simulate(t, seed, aYear)
		})
	}
}

// number is a number from the environment.
func number(t *testing.T, name string, def uint64) uint64 {
	t.Helper()
	s, ok := os.LookupEnv(name)
	if !ok {
		return def
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, s, err)
	}
	return n
}
