package relay

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A writer that leaves every second number out delays its own events by seconds at first,
// then hardly at all, and never the ones of others.
func TestBlocked_NumbersWithHoles(t *testing.T) {
	t.Parallel()
	aggregates, seconds := 3, 240
	if !testing.Short() {
		aggregates = 20
	}
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { wideWindow(c); c.Tail = TailOff })
		defer w.close()
		r, stop := w.run()
		time.Sleep(time.Minute)
		for i := range seconds {
			for a := range aggregates {
				if i%aggregates == a || a == 0 {
					w.write(relaytest.Event(a, int64(2*i+1), "OrderUpdated"))
				}
			}
			time.Sleep(time.Second)
		}
		if s := r.Status(); s.Behind > 3*time.Minute || s.Waiting.Count > aggregates {
			t.Errorf("the sweep is %s behind, and %d aggregates wait", s.Behind.Round(time.Second), s.Waiting.Count)
		}
		time.Sleep(3 * time.Minute)
		if s := r.Status(); s.Waiting.Count != 0 || len(s.Problems) > 0 {
			t.Errorf("%d aggregates wait, problems %q, want none", s.Waiting.Count, s.Problems)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(w.consume("OrderUpdated")); n < seconds+seconds*(aggregates-1)/aggregates {
			t.Errorf("%d events are published", n)
		}
	})
}
