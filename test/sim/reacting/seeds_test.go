package reacting

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// Minutes in which everything can go wrong, once for each seed.
func TestSeeds(t *testing.T) {
	var total total
	n := seeds.Each(t, "test/sim/reacting", "REACTING", 40, 4, func(t *testing.T, seed uint64) {
		simulate(t, seed, func(w *world) {
			w.people(true)
			w.minute(true)
			total.add(w)
		})
	})
	t.Log(total.String())
	// What never happens is not tested.
	if n >= 40 && (total.deaths < 20 || total.again == 0 || total.failed == 0 || total.troubles < 20) {
		t.Errorf("too little went wrong: %s", total.String())
	}
}

// Plugins that hang, and use up their rules' places, cost another rule's events
// nothing, and neither do slow plugins: processes and database are well.
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
