package subscribing

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// Processes join and leave as planned while consumers work, and no message is delivered twice:
// every acknowledgement is confirmed by its first request.
func TestPlannedChanges_RepeatNothing(t *testing.T) {
	for _, hosts := range []int{1, 2, 3} {
		t.Run(fmt.Sprint("hosts=", hosts), func(t *testing.T) {
			var c counts
			simulate(t, uint64(hosts), &c, func(w *world) { w.chaos(1500, hosts, 0) })
			t.Logf("%d messages, %d deliveries, %d planned changes", c.messages.Load(), c.deliveries.Load(), c.stops.Load())
			if c.stops.Load() < 3 {
				t.Errorf("%d planned changes; what does not happen is not tested", c.stops.Load())
			}
			if c.again.Load() > 0 || c.expired.Load() > 0 || c.unknown.Load() > 0 {
				t.Errorf("%d messages were delivered again, %d receipts had expired, and %d results were unknown", c.again.Load(), c.expired.Load(), c.unknown.Load())
			}
		})
	}
}

// Processes are killed, join and leave: no message is lost, out of the order of its key, or
// delivered after its acknowledgement was confirmed. SUBSCRIBING_RECORDS=100000 is the long form.
func TestChaos_KillsJoinsAndLeaves(t *testing.T) {
	var c counts
	n := seeds.Number(t, "SUBSCRIBING_RECORDS", 2000)
	simulate(t, n, &c, func(w *world) { w.chaos(int(n), len(hostNames), 1500) })
	t.Logf("%d messages, %d deliveries, %d messages delivered again, %d acknowledged, %d deaths, %d planned changes", c.messages.Load(), c.deliveries.Load(), c.again.Load(), c.acknowledged.Load(), c.deaths.Load(), c.stops.Load())
	if c.deaths.Load() == 0 || c.stops.Load() == 0 || c.again.Load() == 0 {
		t.Error("no process died with leases; what does not happen is not tested")
	}
}

// chaos publishes n messages of 400 keys while processes of the hosts join, leave and, with a life,
// die. Consumers acknowledge everything.
func (w *world) chaos(n, hosts, life int) {
	l := w.subscribe(subscriptions.Subscription{Name: "main", Topics: topics, MaxReceive: 1000, Backoff: 100 * time.Millisecond, MaxBackoff: time.Second})
	l.runs = true
	alive, stop := context.WithCancel(w.t.Context())
	defer stop()
	var lives sync.WaitGroup
	for _, name := range hostNames[:hosts] {
		h := &host{w: w, name: name, rnd: w.random(), life: life, stay: 20 * time.Second}
		lives.Go(func() { h.live(alive) })
	}
	lives.Go(func() { w.expireMembers(alive) })
	time.Sleep(15 * time.Second)
	for range 6 {
		c := &consumer{w: w, l: l, rnd: w.random(), patience: 40}
		lives.Go(func() { c.working(alive) })
	}
	rnd := w.random()
	for i := range n {
		if i%20 == 0 {
			time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
		}
		w.publish(topics[rnd.IntN(len(topics))], fmt.Sprint("k", rnd.IntN(400)), fmt.Sprint("m", i), nil)
	}
	time.Sleep(2 * time.Minute)
	w.allIsWell()
	if !w.awaitSettled() {
		w.t.Error("messages are not settled")
		w.report()
	}
	_ = retry.Wait(alive, 30*time.Second) // nothing more may be delivered
	stop()
	lives.Wait()
	w.running.Wait()
	l.judge()
	if w.t.Failed() {
		w.t.Log(w.log)
	}
}

// working acknowledges received messages, after some time.
func (c *consumer) working(ctx context.Context) {
	for ctx.Err() == nil {
		p := c.w.any(c.rnd)
		if p == nil {
			_ = retry.Wait(ctx, 50*time.Millisecond)
			continue
		}
		r := subscriptions.Receive{Max: 50, MaxPerKey: 1 + c.rnd.IntN(3), Wait: time.Second, VisibilityTimeout: time.Minute}
		bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
		got, err := p.Receive(bounded, c.l.Name, r)
		cancel()
		if err != nil || p.Dead() {
			_ = retry.Wait(ctx, 50*time.Millisecond)
			continue
		}
		var all []*delivery
		for i := range got {
			all = append(all, c.l.recordDelivered(p.name, &got[i], r.VisibilityTimeout))
		}
		_ = retry.Wait(ctx, time.Duration(c.rnd.Int64N(int64(3*time.Second))))
		c.ackAll(ctx, all)
	}
}
