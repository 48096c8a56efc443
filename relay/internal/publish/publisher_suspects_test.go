package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// An event that was refused and is sent alone, to a topic that does not answer,
// keeps no suspect of another topic waiting.
func TestSuspects_OfOtherTopicsDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) { c.BreakerFailures, c.BreakerMinCalls = 1000, 1000 })
		defer b.close()
		warm := []outbox.Event{relaytest.Event(0, 1, "Silent"), relaytest.Event(1, 1, "Fine")}
		for _, e := range warm {
			b.submit(e, nil)
		}
		b.drain(time.Minute)
		relaytest.RefuseOnce(b.cluster, "Silent")
		answers := relaytest.TakesNothing(b.cluster, "Silent")
		silent, fine := relaytest.Event(2, 1, "Silent"), relaytest.Event(3, 1, "Fine")
		b.submit(silent, nil)
		time.Sleep(time.Second) // it was refused, and is sent again
		relaytest.RefuseOnce(b.cluster, "Fine")
		var out time.Time
		began := time.Now()
		b.submit(fine, func() { out = time.Now() })
		time.Sleep(10 * time.Second)
		synctest.Wait() // a sleep alone orders no memory
		if out.IsZero() || out.Sub(began) > time.Second {
			t.Errorf("an event for a topic that answers went out after %s, want at once", out.Sub(began))
		}
		answers()
		b.drain(5 * time.Minute)
		relaytest.CheckOrder(t, b.consume("Silent", "Fine"), append(warm, silent, fine))
	})
}
