package publish

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A connection that is lost with many outstanding records counts as one failure.
func TestBreaker_CountsALostConnectionOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.submit(relaytest.Event(0, 1, "OrderCreated"), nil)
		b.drain(time.Minute)
		var cuts atomic.Int64
		cuts.Store(2)
		b.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			b.cluster.KeepControl()
			return nil, errors.New("cut"), cuts.Add(-1) >= 0
		})
		all := relaytest.Events(30, 2, "OrderCreated")[1:]
		for _, e := range all {
			b.submit(e, nil)
			time.Sleep(5 * time.Millisecond)
		}
		b.drain(time.Minute)
		if n := relaytest.Count(b.publisher.Metrics.Breaker.Changes.WithLabelValues("open")); n != 0 {
			t.Errorf("the breaker opened %v times, want two lost connections to count as two failures at most", n)
		}
	})
}

// Without a dead-letter table the publisher holds all events while the breaker is open,
// and publishes them once and in order when it closes.
func TestBreaker_HoldsAndResumes(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]kfake.Fault{
		"refuses": {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1},
		"unsure":  {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				defer b.close()
				f := b.cluster.Fault(fault)
				all := relaytest.Events(10, 5, "OrderCreated", "OrderUpdated")
				for _, e := range all {
					b.submit(e, nil)
				}
				time.Sleep(15 * time.Second)
				if s := b.publisher.State().Breaker; s.State != BreakerOpen || s.Cause == nil {
					t.Errorf("the breaker is %s because of %v, want open and a cause", s.State, s.Cause)
				}
				time.Sleep(45 * time.Second)
				f.Remove()
				b.drain(5 * time.Minute)
				if s := b.publisher.State().Breaker; s.State != BreakerClosed {
					t.Errorf("the breaker is %s when all is well, want closed", s.State)
				}
				relaytest.CheckOrder(t, b.consume("OrderCreated", "OrderUpdated"), all)
			})
		})
	}
}

// The breaker closes also without new events.
func TestBreaker_ClosesWithoutEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.submit(relaytest.Event(0, 1, "OrderCreated"), nil)
		b.drain(time.Minute)
		for range 5 {
			call := b.publisher.calls.Admit(time.Now())
			if call == nil {
				t.Fatal("a closed breaker refused a call")
			}
			b.publisher.calls.Answered(call, errors.New("test"))
			time.Sleep(100 * time.Millisecond) // failures within 50 ms count as one
		}
		if s := b.publisher.State().Breaker; s.State != BreakerOpen {
			t.Fatalf("the breaker is %s, want open", s.State)
		}
		time.Sleep(time.Minute)
		if s := b.publisher.State().Breaker; s.State != BreakerClosed {
			t.Errorf("the breaker is %s a minute later, want closed", s.State)
		}
	})
}
