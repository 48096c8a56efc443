package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A suspect whose topic does not answer does not delay a suspect of another topic.
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
		time.Sleep(time.Second) // the refused event is sent again
		relaytest.RefuseOnce(b.cluster, "Fine")
		var out time.Time
		began := time.Now()
		b.submit(fine, func() { out = time.Now() })
		time.Sleep(10 * time.Second)
		synctest.Wait() // a sleep does not synchronize memory
		if out.IsZero() || out.Sub(began) > time.Second {
			t.Errorf("an event for a topic that answers was published after %s, want immediately", out.Sub(began))
		}
		answers()
		b.drain(5 * time.Minute)
		relaytest.CheckOrder(t, b.consume("Silent", "Fine"), append(warm, silent, fine))
	})
}
