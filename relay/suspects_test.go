package relay

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// refuseOnce makes the broker refuse the next records for the topic, once.
func (b *bundle) refuseOnce(topic string) {
	b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.InvalidRecord})
}

// takesNothing makes a topic take nothing until it is called off.
func (b *bundle) takesNothing(topic string) (end func()) {
	return b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1}).Remove
}

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
		b.refuseOnce("Silent")
		answers := b.takesNothing("Silent")
		silent, fine := relaytest.Event(2, 1, "Silent"), relaytest.Event(3, 1, "Fine")
		b.submit(silent, nil)
		time.Sleep(time.Second) // it was refused, and is sent again
		b.refuseOnce("Fine")
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
		checkOrder(t, b.consume("Silent", "Fine"), append(warm, silent, fine))
	})
}

// What waits for a suspect's answer becomes dead letters when its topic is silent
// for as long as all attempts would take, as all others of the topic do: further
// suspects too.
func TestSuspects_WhatWaitsForOneIsBuried(t *testing.T) {
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
		w.refuseOnce("Silent")
		answers := w.takesNothing("Silent")
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
		checkOrder(t, w.consume("Silent"), all)
	})
}

// A topic that takes nothing, with more events for it than may become dead
// letters, fills the relay's memory and stops its reading. It says so.
func TestSuspects_AStalledTopicPastTheLimitIsSaid(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.SpillLimit, c.MaxInFlightRecords = 5, 20
			c.BreakerFailures, c.BreakerMinCalls = 1000, 1000
		})
		defer w.close()
		r, stop := w.run()
		time.Sleep(5 * time.Second)
		answers := w.takesNothing("Silent")
		all := relaytest.Events(60, 1, "Silent")
		for _, e := range all {
			w.write(e)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(5 * time.Minute)
		s := r.Status()
		said := strings.Join(s.Problems, "\n")
		if !s.Holding || len(s.Stalled) == 0 || !s.Stalled[0].Holding || !strings.Contains(said, "the limit") {
			t.Errorf("Status() = %+v, want that it holds, and a problem that says why", s)
		}
		if n := len(w.open()); n == 0 || n > 5+buryConcurrency {
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
		checkOrder(t, w.consume("Silent"), all)
	})
}
