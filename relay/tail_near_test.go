package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Events that arrive faster than the bound allows are reported while they are still
// published immediately, until the sweep has caught up, and logged once each.
func TestTail_ReportsItsLimitBeforeItStops(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.ConfidenceWindow, c.DedupMemory = time.Minute, 50*dedup.BytesPerEvent
		})
		defer w.close()
		log := w.logToBuffer()
		r, stop := w.run()
		time.Sleep(5 * time.Second)
		step := func(from, to int) Status {
			for i := from; i < to; i++ {
				w.write(relaytest.Event(i, 1, "OrderCreated"))
				time.Sleep(200 * time.Millisecond)
			}
			return r.Status()
		}
		const named = "set relay.dedup_memory_bytes"
		if s := step(0, 35); len(s.Problems) > 0 {
			t.Errorf("problems %q at 70 percent of the bound, want none", s.Problems)
		}
		if s := step(35, 45); len(s.Problems) != 1 || !strings.Contains(s.Problems[0], named) || s.Tail.Paused {
			t.Errorf("problems %q, tail %+v at 90 percent of the bound, want one before it pauses", s.Problems, s.Tail)
		}
		if s := step(45, 55); !s.Tail.Paused || len(s.Problems) != 1 {
			t.Errorf("problems %q, tail %+v past the bound, want one and a pause", s.Problems, s.Tail)
		}
		time.Sleep(2 * time.Minute)
		if s := r.Status(); len(s.Problems) > 0 || s.Tail.NearLimit {
			t.Errorf("problems %q, tail %+v after the sweep caught up", s.Problems, s.Tail)
		}
		for _, line := range []string{"nearly full", "has room again"} {
			if n := strings.Count(fmt.Sprint(log), line); n != 1 {
				t.Errorf("%q is in the log %d times, want once", line, n)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
