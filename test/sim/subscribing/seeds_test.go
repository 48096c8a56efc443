package subscribing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/verify"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// hostNames are the hosts of a world; a seed uses some of them.
var hostNames = []string{"h1", "h2", "h3"}

// kept are seeds that have failed.
var kept = []uint64{}

// Instances die, freeze and lose their connections, the database and the broker fail,
// consumers fail and cheat, operators seek, purge, pause, resize and replay: the
// subscriptions keep their promises.
func TestSeeds(t *testing.T) {
	var c counts
	for _, seed := range kept {
		t.Run(fmt.Sprint("kept=", seed), func(t *testing.T) { simulate(t, seed, &c, (*world).everythingFails) })
	}
	n := seeds.Each(t, "test/sim/subscribing", "SUBSCRIBING", 24, 4, func(t *testing.T, seed uint64) {
		simulate(t, seed, &c, (*world).everythingFails)
	})
	for name, v := range map[string]*atomic.Int64{
		"messages": &c.messages, "deliveries": &c.deliveries, "repeated deliveries": &c.again, "acknowledged": &c.acknowledged, "expired receipts": &c.expired,
		"unknown results": &c.unknown, "dead letters": &c.deadLettered, "deaths": &c.deaths, "frozen processes": &c.frozen, "failures": &c.troubles,
		"recreated topics": &c.recreated, "lost offsets": &c.offsetsLost, "seeks": &c.seeks, "purges": &c.purges, "replays": &c.replays, "resizes": &c.resizes, "deletions": &c.deleted, "late receipts": &c.late,
		"calls": &c.calls, "calls past their time": &c.hangs, "panics": &c.panics, "permanent errors": &c.refused, "deaths after a call": &c.diedAfterCall, "unwanted messages": &c.unwanted,
	} {
		t.Logf("%s: %d", name, v.Load())
		enough := uint64(24)
		if v == &c.unknown || v == &c.seeks { // they are rare
			enough = 100
		}
		if n >= enough && v.Load() == 0 {
			t.Errorf("%d seeds had %d %s; what does not happen is not tested", n, v.Load(), name)
		}
	}
}

// everythingFails is the story of a seed.
func (w *world) everythingFails() {
	ordering := []subscriptions.Ordering{subscriptions.OrderingKey, subscriptions.OrderingKey, subscriptions.OrderingNone, subscriptions.OrderingStrict}[w.rnd.IntN(4)]
	one := subscriptions.Subscription{Name: "main", Topics: topics, Ordering: ordering, MaxReceive: 3, Backoff: 500 * time.Millisecond, MaxBackoff: 5 * time.Second}
	two := subscriptions.Subscription{Name: "side", Topics: topics[1:], Backoff: 200 * time.Millisecond}
	pushed := &two // one of them has push delivery, so operators and storms of failures meet both kinds
	if w.rnd.IntN(2) == 0 {
		pushed = &one
	}
	pushed.Push, pushed.VisibilityTimeout = &subscriptions.Push{To: "plugin", Concurrency: 1 + w.rnd.IntN(6)}, 2*time.Second
	main, side := w.subscribe(one), w.subscribe(two)
	w.sick = []int{5, 20, 60}[w.rnd.IntN(3)]
	alive, stop := context.WithCancel(w.t.Context())
	defer stop()
	var lives sync.WaitGroup
	life := []int{0, 100, 300, 1000}[w.rnd.IntN(4)]
	for _, name := range hostNames[:1+w.rnd.IntN(3)] {
		h := &host{w: w, name: name, rnd: w.random(), life: life}
		lives.Go(func() { h.live(alive) })
	}
	for i, l := range []*ledger{main, main, main, side} {
		if l.Push != nil {
			continue
		}
		c := &consumer{w: w, l: l, rnd: w.random(), sick: []int{5, 20, 60}[w.rnd.IntN(3)]}
		if i > 2 {
			c.sick = 5
		}
		lives.Go(func() { c.live(alive) })
	}
	lives.Go(func() { w.expireMembers(alive) })
	failing, well := context.WithTimeout(alive, busy)
	defer well()
	var troubles sync.WaitGroup
	n, rnd, recreates := 30+w.rnd.IntN(50), w.random(), w.rnd.IntN(5) == 0
	troubles.Go(func() { w.produce(failing, rnd, n, recreates) })
	operators := func(ctx context.Context, rnd *rand.Rand) { w.operators(ctx, rnd, main, recreates) }
	for _, f := range []func(context.Context, *rand.Rand){w.database, w.brokers, w.networks, operators} {
		rnd := w.random()
		if w.rnd.IntN(4) > 0 {
			troubles.Go(func() { f(failing, rnd) })
		}
	}
	troubles.Wait()
	switch rnd := w.random(); {
	case recreates && rnd.IntN(2) == 0:
		w.recreateAway(alive, main, topics[rnd.IntN(len(topics))], rnd.IntN(60))
	case !recreates && rnd.IntN(5) == 0:
		w.loseOffsets(alive, rnd, main)
	}
	w.allIsWell()
	var last sync.WaitGroup
	last.Go(func() {
		for rnd := w.random(); retry.Wait(alive, 5*time.Second) == nil; {
			_, _ = w.store.Resume(alive, main.Name, "op") // a pause without an answer may take effect late
			if main.Ordering == subscriptions.OrderingStrict {
				w.replay(alive, rnd, main, 1000)
			}
		}
	})
	if !w.awaitSettled() {
		w.t.Errorf("messages are not settled after %s without failures", quiet)
		w.report()
	}
	_ = retry.Wait(alive, 30*time.Second) // nothing more may be delivered
	stop()
	lives.Wait()
	last.Wait()
	w.running.Wait()
	for _, l := range w.subscriptions {
		l.judge()
	}
	if w.t.Failed() {
		w.t.Log(w.log)
	}
}

// allIsWell ends all failures, also of consumers.
func (w *world) allIsWell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm.Store(true)
	for _, p := range w.mu.processes {
		p.Arm(0, false, p.cutOff)
	}
}

// report logs the state of the subscriptions.
func (w *world) report() {
	p := w.any(w.random())
	for _, l := range w.subscriptions {
		r, err := verify.Check(w.t.Context(), verify.Config{Store: w.store, DeadLetters: w.deadLetters, Kafka: w.admin}, l.Name)
		w.t.Logf("%s: %+v, %v", l.Name, r, err)
		if p != nil {
			s, err := p.Status(w.t.Context(), l.Name)
			w.t.Logf("%+v, %v", s, err)
		}
	}
}
