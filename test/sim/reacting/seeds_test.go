package reacting

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// Minutes in which everything can go wrong, once for each seed.
func TestSeeds(t *testing.T) {
	first, n := number(t, "REACTING_FIRST", 1), number(t, "REACTING_SEEDS", 40)
	if testing.Short() {
		n = min(n, 4)
	}
	var total total
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("again: REACTING_FIRST=%d REACTING_SEEDS=1 go test ./test/sim/reacting -run TestSeeds -count 20", seed)
				}
			}()
			simulate(t, seed, func(w *world) {
				w.people(true)
				w.minute(true)
				total.add(w)
			})
		})
	}
	t.Log(total.String())
	// What never happens is not tested.
	if n >= 40 && (total.deaths < 20 || total.again == 0 || total.failed == 0 || total.troubles < 20) {
		t.Errorf("too little went wrong: %s", total.String())
	}
}

// Plugins that hang, and use up their rules' places, cost another rule's events
// nothing, nor those that are slow: processes and database are well.
func TestSlowPlugin_DelaysNoOther(t *testing.T) {
	simulate(t, 1, func(w *world) {
		w.people(false)
		w.minute(false)
		calls := w.ledger.of("clear")
		if len(calls) != len(w.events) {
			t.Errorf("%d calls for %d events", len(calls), len(w.events))
		}
		for _, c := range calls {
			if late := c.began.Sub(w.events[c.event].at); late > time.Second {
				t.Errorf("%s waited for %s at a rule whose plugin is well", c.event, late)
			}
		}
		if n := w.ledger.hung("slow"); n < 5 {
			t.Errorf("only %d calls of the slow plugin hung", n)
		}
	})
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
