package relay

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// With each version of the broker the relay creates topics, is killed and reads them back, writes
// dead letters in an outage, publishes them, and waits for a partition without a leader.
func TestRelay_PublishesToEachVersionOfTheBroker(t *testing.T) {
	t.Parallel()
	testworld.EachBroker(t, func(t *testing.T, v *testworld.BrokerVersion) {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, scyllafake.Config{Tokens: 4}, nil, v.Options()...)
			defer w.close()
			var all []outbox.Event
			write := func(seq int64) {
				for a := range 12 {
					all = append(all, relaytest.Event(a, seq, []string{"OrderCreated", "OrderUpdated"}[seq%2]))
					w.write(all[len(all)-1])
				}
			}
			go func() {
				write(1)
				time.Sleep(5 * time.Second)
				write(2)
			}()
			w.crashAfter(7 * time.Second)
			r, stop := w.run()
			write(3)
			time.Sleep(5 * time.Second)
			reached := w.unreachable()
			write(4)
			time.Sleep(20 * time.Second)
			write(5)
			if r.Status().DeadLetters == 0 {
				t.Error("no dead letters in an outage")
			}
			reached()
			time.Sleep(time.Minute)
			end := w.noLeader("OrderUpdated", 1, true)
			write(6)
			time.Sleep(20 * time.Second)
			end()
			time.Sleep(time.Minute)
			if s := r.Status(); s.DeadLetters > 0 || s.InFlight > 0 || len(s.Problems) > 0 {
				t.Errorf("%d dead letters, %d events in flight, problems %q, when all is well", s.DeadLetters, s.InFlight, s.Problems)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), all)
		})
	})
}
