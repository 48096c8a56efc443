package relay

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// What waits for a suspect's answer becomes dead letters when its topic is silent
// for as long as all attempts would take, as all others of the topic do: further
// suspects too.
func TestSuspects_EventsBehindOneBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.BreakerFailures, c.BreakerMinCalls = 1000, 1000
			c.Partitions = 1 // a suspect holds up its own
		})
		defer w.close()
		r, stop := w.run()
		all := relaytest.Events(8, 2, "Silent")
		w.write(all[0])
		time.Sleep(5 * time.Second)
		relaytest.RefuseOnce(w.cluster, "Silent")
		answers := relaytest.TakesNothing(w.cluster, "Silent")
		w.write(all[1])
		time.Sleep(time.Second) // it was refused, and is sent again: the others wait for it
		for _, e := range all[2:] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		s := r.Status()
		if s.DeadLetters+s.InFlight != len(all)-1 || s.DeadLetters < len(all)-1-2 {
			t.Errorf("%d dead letters and %d in flight, want of %d events all that the broker cannot have as dead letters", s.DeadLetters, s.InFlight, len(all)-1)
		}
		if !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, `topic "Silent"`) }) {
			t.Errorf("the problems are %q, want the topic that does not answer among them", s.Problems)
		}
		answers()
		time.Sleep(10 * time.Minute)
		if s := r.Status(); s.DeadLetters != 0 || len(s.Problems) > 0 {
			t.Errorf("Status() after all is well = %+v", s)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("Silent"), all)
	})
}

// A topic that takes nothing, with more events for it than may become dead letters, fills the
// relay's memory and stops its reading. The relay reports that.
func TestSuspects_AStalledTopicPastTheLimitIsReported(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.SpillLimit, c.MaxInFlightRecords = 5, 20
			c.BreakerFailures, c.BreakerMinCalls = 1000, 1000
		})
		defer w.close()
		r, stop := w.run()
		time.Sleep(5 * time.Second)
		answers := relaytest.TakesNothing(w.cluster, "Silent")
		all := relaytest.Events(60, 1, "Silent")
		for _, e := range all {
			w.write(e)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(5 * time.Minute)
		s := r.Status()
		said := strings.Join(s.Problems, "\n")
		if !s.Holding || len(s.Stalled) == 0 || !s.Stalled[0].Holding || !strings.Contains(said, "the spill limit is reached") {
			t.Errorf("Status() = %+v, want that it holds, and a problem that says why", s)
		}
		if n := len(w.open()); n == 0 || n > 5+publish.WriteConcurrency {
			t.Errorf("%d dead letters, want no more than the limit", n)
		}
		answers()
		time.Sleep(10 * time.Minute)
		if s := r.Status(); s.Holding || len(s.Stalled) > 0 || len(s.Problems) > 0 {
			t.Errorf("Status() after all is well = %+v", s)
		}
		if n := w.statuses()[dlq.Pending]; n != 0 {
			t.Errorf("%d dead letters are left", n)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("Silent"), all)
	})
}
