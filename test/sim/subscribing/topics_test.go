package subscribing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// noticed is the time in which clients notice that a topic was created again.
const noticed = time.Minute

// recreate deletes a topic, with leases of its messages, and creates it again.
func (w *world) recreate(topic string, gap time.Duration) {
	w.t.Helper()
	w.slow.Add(1)
	time.AfterFunc(noticed, func() { w.slow.Add(-1) })
	must(w.t, w.broker.DeleteTopic(topic))
	w.mu.Lock()
	w.mu.made[topic]++
	w.mu.Unlock()
	for _, l := range w.subscriptions {
		l.mu.Lock()
		for p := range l.mu.deleted {
			if p.topic == topic {
				delete(l.mu.deleted, p)
			}
		}
		l.mu.Unlock()
	}
	time.Sleep(gap)
	must(w.t, w.broker.CreateTopic(topic, partitions, nil))
	w.producer.PurgeTopicsFromClient(topic)
	w.counts.recreated.Add(1)
}

// made returns how often a topic was deleted.
func (w *world) made(topic string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.made[topic]
}

// loseOffsets stops all processes and removes the offsets of a subscription, as the broker does
// when a group has had no member for long, or sets them, as another program does.
func (w *world) loseOffsets(ctx context.Context, rnd *rand.Rand, l *ledger) {
	w.dark.Store(true)
	defer w.dark.Store(false)
	r, err := w.store.Get(w.t.Context(), l.Name)
	must(w.t, err)
	reset := rnd.IntN(2) == 0
	for range 60 {
		if retry.Wait(ctx, 3*time.Second) != nil {
			return
		}
		to, err := w.offsets(ctx, rnd, l, reset)
		if err == nil && reset {
			err = w.commit(ctx, r.Incarnation(), to)
		} else if err == nil {
			var deleted kadm.DeleteGroupResponses
			if deleted, err = w.admin.DeleteGroups(ctx, r.Incarnation()); err == nil {
				err = deleted.Error()
			}
		}
		if err != nil {
			continue // the group has members
		}
		w.counts.offsetsLost.Add(1)
		l.mu.Lock()
		for at, offset := range to {
			s := seek{at: time.Now(), offset: offset, ok: true}
			if before := l.mu.seeks[at]; !reset && len(before) > 0 { // the last seek decides where it begins
				s.offset, s.ok = before[len(before)-1].offset, before[len(before)-1].ok
			}
			l.mu.seeks[at] = append(l.mu.seeks[at], s)
		}
		l.mu.Unlock()
		return
	}
}

// recreateAway stops all processes and recreates a topic, whose offsets the broker keeps, with n
// messages.
func (w *world) recreateAway(ctx context.Context, l *ledger, topic string, n int) {
	w.dark.Store(true)
	defer w.dark.Store(false)
	r, err := w.store.Get(w.t.Context(), l.Name)
	must(w.t, err)
	made := false
	var kept kadm.Offsets
	for range 60 {
		if retry.Wait(ctx, 3*time.Second) != nil {
			return
		}
		if !made {
			if groups, err := w.admin.DescribeGroups(ctx, r.Incarnation()); err != nil || len(groups[r.Incarnation()].Members) > 0 {
				continue
			}
			committed, err := w.admin.FetchOffsets(ctx, r.Incarnation())
			if err != nil {
				continue
			}
			kept = committed.Offsets()
			kept.KeepFunc(func(o kadm.Offset) bool { return o.Topic == topic && o.At >= 0 })
			w.recreate(topic, 0)
			for i := range n {
				w.publish(topic, fmt.Sprint("k", i%7), fmt.Sprint("again", w.made(topic), "-", i), nil)
			}
			made = true
		}
		if committed, err := w.admin.CommitOffsets(ctx, r.Incarnation(), kept); err == nil && committed.Ok() {
			return
		}
	}
}

// offsets returns an offset of each partition of a subscription: the first one, or a random one.
func (w *world) offsets(ctx context.Context, rnd *rand.Rand, l *ledger, random bool) (map[place]int64, error) {
	ends, err := w.admin.ListEndOffsets(ctx, l.Topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	to := make(map[place]int64)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range ends.Offsets().Sorted() {
		at := place{end.Topic, end.Partition}
		if to[at] = l.mu.deleted[at]; random { // to one that is deleted is a skip, which is reported
			to[at] += rnd.Int64N(max(0, end.At-to[at]) + 1)
		}
	}
	return to, nil
}

// commit sets the offsets of a group without members.
func (w *world) commit(ctx context.Context, group string, to map[place]int64) error {
	offsets := make(kadm.Offsets)
	for at, offset := range to {
		offsets.AddOffset(at.topic, at.partition, offset, -1)
	}
	committed, err := w.admin.CommitOffsets(ctx, group, offsets)
	if err == nil {
		err = committed.Error()
	}
	return err
}

// healthy runs instances and consumers that do not fail while story runs, and judges.
func healthy(t *testing.T, seed uint64, story func(*world, *ledger)) *counts {
	t.Helper()
	c := new(counts)
	simulate(t, seed, c, func(w *world) {
		l := w.subscribe(subscriptions.Subscription{Name: "main", Topics: topics, MaxReceive: 3, Backoff: 500 * time.Millisecond})
		alive, stop := context.WithCancel(w.t.Context())
		defer stop()
		var lives sync.WaitGroup
		for _, name := range hostNames[:2] {
			h := &host{w: w, name: name, rnd: w.random()}
			lives.Go(func() { h.live(alive) })
		}
		lives.Go(func() { w.expireMembers(alive) })
		time.Sleep(30 * time.Second)
		for range 2 {
			c := &consumer{w: w, l: l, rnd: w.random(), sick: 30}
			lives.Go(func() { c.live(alive) })
		}
		story(w, l)
		w.allIsWell()
		if !w.awaitSettled() {
			t.Error("messages are not settled")
			w.report()
		}
		stop()
		lives.Wait()
		w.running.Wait()
		l.judge()
	})
	return c
}

// Topics are deleted and created again while their messages are leased. The messages of the new
// topics, with the same offsets, are delivered; receipts of the former ones settle none of them.
func TestTopics_RecreatedUnderLeases(t *testing.T) {
	for seed := uint64(1); seed < 4; seed++ {
		c := healthy(t, seed, func(w *world, _ *ledger) {
			for n := range 4 {
				for i := range 40 {
					w.publish(topics[i%2], fmt.Sprint("k", i%7), fmt.Sprint("m", n, "-", i), nil)
					time.Sleep(50 * time.Millisecond)
				}
				if n < 3 {
					w.recreate(topics[n%2], time.Duration(n)*time.Second)
				}
			}
		})
		if c.recreated.Load() != 3 || c.acknowledged.Load() == 0 {
			t.Errorf("%d topics recreated, %d messages acknowledged", c.recreated.Load(), c.acknowledged.Load())
		}
	}
}

// A topic is deleted and created again while no instance runs, and the broker keeps the positions
// of the former one: the messages of the new one are delivered from its beginning.
func TestTopics_RecreatedWhileAway(t *testing.T) {
	c := healthy(t, 5, func(w *world, l *ledger) {
		for n := range 2 {
			for i := range 40 {
				w.publish(topics[0], fmt.Sprint("k", i%7), fmt.Sprint("m", n, "-", i), nil)
				time.Sleep(100 * time.Millisecond)
			}
			w.recreateAway(w.t.Context(), l, topics[0], 80)
		}
	})
	if c.recreated.Load() != 2 {
		t.Errorf("%d topics recreated, want 2", c.recreated.Load())
	}
}

// The offsets of a subscription expire while no instance runs, or another program sets them: its
// messages are delivered again from there.
func TestOffsets_ExpiredAndReset(t *testing.T) {
	for seed := uint64(1); seed < 5; seed++ {
		c := healthy(t, seed, func(w *world, l *ledger) {
			for i := range 60 {
				w.publish(topics[i%2], fmt.Sprint("k", i%7), fmt.Sprint("m", i), nil)
				time.Sleep(100 * time.Millisecond)
			}
			w.loseOffsets(w.t.Context(), w.random(), l)
		})
		if c.offsetsLost.Load() != 1 {
			t.Errorf("offsets were lost %d times", c.offsetsLost.Load())
		}
	}
}
