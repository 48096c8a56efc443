package publish

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// claimedReplay is a replay whose dead letter remains claimed.
type claimedReplay struct{ ended chan<- error }

func (claimedReplay) isClaimed(time.Time) bool { return true }

func (r claimedReplay) end(e replayEnd) { r.ended <- e.err }

// A replay that must be sent alone and is canceled because the breaker opened does not
// stop other events.
func TestPublisher_AReplayCalledOffEndsItsProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		all := []outbox.Event{relaytest.Event(0, 1, "OrderUpdated"), relaytest.Event(1, 1, "OrderUpdated"), relaytest.Event(2, 1, "OrderUpdated")}
		b.submit(all[0], nil)
		b.drain(time.Minute)
		away := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		for i := range 6 { // several partitions: a single one does not open the breaker
			all = append(all, relaytest.Event(20+i, 1, "OrderUpdated"))
			b.submit(all[len(all)-1], nil)
		}
		b.submit(all[1], nil)
		time.Sleep(time.Second)
		ended := make(chan error, 1)
		p := b.publisher
		l := &lane{id: relaytest.Event(9, 1, "OrderUpdated").AggregateID.UUID(), replay: claimedReplay{ended}}
		l.items = append(l.items, &item{lane: l, event: relaytest.Event(9, 1, "OrderUpdated"), topic: "OrderUpdated"})
		l.state = laneSuspect // it was refused once, together with others
		p.ask(func(c *cell) {
			c.replaying[l] = struct{}{}
			c.pump(l)
		})
		if err := <-ended; !errors.Is(err, errBreakerOpen) {
			t.Fatalf("the replay ended with %v, want it canceled", err)
		}
		away.Remove()
		b.submit(all[2], nil)
		b.drain(10 * time.Minute)
		relaytest.CheckOrder(t, b.consume("OrderUpdated"), all)
	})
}
