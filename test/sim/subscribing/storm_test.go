package subscribing

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// 1,000 messages whose deliveries always fail delay no message of another key: each of
// these is delivered within two seconds, and the failing ones become dead letters.
func TestFailureStorm_DelaysNoOtherKey(t *testing.T) {
	const failing, late = 1000, 2 * time.Second
	simulate(t, 1, new(counts), func(w *world) {
		l := w.subscribe(subscriptions.Subscription{Name: "main", Topics: topics, MaxReceive: 2, Backoff: 500 * time.Millisecond})
		alive, stop := context.WithCancel(w.t.Context())
		defer stop()
		var lives sync.WaitGroup
		for _, name := range hostNames[:2] {
			h := &host{w: w, name: name, rnd: w.random()}
			lives.Go(func() { h.live(alive) })
		}
		time.Sleep(30 * time.Second) // the group is complete
		for range 3 {
			c := &consumer{w: w, l: l, rnd: w.random()}
			lives.Go(func() { c.failing(alive) })
		}
		for i := range failing {
			w.publish(topics[i%2], fmt.Sprint("bad", i), fmt.Sprint("bad", i), nil)
			if i%20 == 0 {
				w.publish(topics[i%2], fmt.Sprint("good", i%3), fmt.Sprint("good", i), nil)
				time.Sleep(200 * time.Millisecond)
			}
		}
		if !w.awaitSettled() {
			w.t.Error("messages are not settled")
		}
		stop()
		lives.Wait()
		w.running.Wait()
		l.judge()
		deadLetters := l.deadLetters()
		for name, m := range l.mu.messages {
			switch bad := name[0] == 'b'; {
			case bad != (len(deadLetters[name]) > 0):
				w.t.Errorf("%s has %d dead letters", name, len(deadLetters[name]))
			case len(m.deliveries) == 0:
				w.t.Errorf("%s was not delivered", name)
			case !bad && m.deliveries[0].start.Sub(m.at) > late:
				w.t.Errorf("%s waited for %s behind messages of other keys", name, m.deliveries[0].start.Sub(m.at))
			}
		}
	})
}

// failing acknowledges good messages and returns bad ones.
func (c *consumer) failing(ctx context.Context) {
	for ctx.Err() == nil {
		var steps []step
		for _, d := range c.receive(ctx) {
			s := subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: d.receipt}
			if d.of[0] == 'b' {
				s.Action = subscriptions.ActionNack
			}
			steps = append(steps, step{d, s})
		}
		if len(steps) == 0 {
			_ = retry.Wait(ctx, 50*time.Millisecond)
		}
		c.settle(ctx, steps)
	}
}
