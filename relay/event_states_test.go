package relay

import (
	"cmp"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// eventTransitions are the transitions that are visible from outside of the publisher's
// lock: to be queued and sent is one step where nothing is in the way.
var eventTransitions = []relaytest.Transition{
	{From: relaytest.Nowhere, To: publish.EventSent, By: "its turn, nothing before it"},
	{From: relaytest.Nowhere, To: publish.EventQueued, By: "something before it, or its topic takes nothing"},
	{From: relaytest.Nowhere, To: publish.EventDead, By: "the breaker is open"},
	{From: relaytest.Nowhere, To: publish.EventBlocked, By: "a dead letter before it"},
	{From: publish.EventQueued, To: publish.EventSent, By: "its turn"},
	{From: publish.EventQueued, To: publish.EventDead, By: "the breaker opens, or its topic takes nothing for as long as all attempts"},
	{From: publish.EventQueued, To: publish.EventBlocked, By: "the one before it becomes a dead letter"},
	{From: publish.EventSent, To: publish.EventOut, By: "acknowledged"},
	{From: publish.EventSent, To: publish.EventReturned, By: "a transient error"},
	{From: publish.EventSent, To: publish.EventSuspect, By: "refused"},
	{From: publish.EventSent, To: publish.EventDead, By: "the breaker opens and it is in no request, or its last attempt fails"},
	{From: publish.EventReturned, To: publish.EventSent, By: "its wait is over"},
	{From: publish.EventReturned, To: publish.EventQueued, By: "its wait is over, but its topic has to be made"},
	{From: publish.EventSuspect, To: publish.EventOut, By: "acknowledged alone"},
	{From: publish.EventSuspect, To: publish.EventDead, By: "refused alone"},
	{From: publish.EventSuspect, To: publish.EventHeld, By: "refused alone, without dead letters"},
	{From: publish.EventHeld, To: publish.EventOut, By: "acknowledged at last"},
	{From: publish.EventDead, To: publish.EventReplaying, By: "the breaker closes, its time, an operator"},
	{From: publish.EventDead, To: publish.EventOut, By: "discarded or resolved by an operator"},
	{From: publish.EventBlocked, To: publish.EventReplaying, By: "the one before it is published"},
	{From: publish.EventBlocked, To: publish.EventDead, By: "the one before it is discarded or resolved"},
	{From: publish.EventBlocked, To: publish.EventOut, By: "discarded or resolved by an operator"},
	{From: publish.EventReplaying, To: publish.EventOut, By: "acknowledged"},
	{From: publish.EventReplaying, To: publish.EventDead, By: "failed, or called off"},
}

// followEvents records the states of the events every millisecond until end is called.
func followEvents(w *relaytest.Walk, p func() *publish.Publisher, all ...outbox.Event) (end func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	names := make([]string, len(all))
	for i := range all {
		names[i] = fmt.Sprintf("event %d of %s", all[i].Sequence, all[i].AggregateID)
	}
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if p := p(); p != nil {
				for i := range all {
					w.See(names[i], cmp.Or(p.EventState(&all[i]), relaytest.Nowhere))
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}

// takeTime makes each request that publishes take 20 ms.
func (b *fixture) takeTime() {
	b.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		b.cluster.SleepControl(func() { time.Sleep(20 * time.Millisecond) })
		return nil, nil, false
	})
}

// Events go through every transition that there is, and no other.
func TestEvent_Transitions(t *testing.T) {
	t.Parallel()
	seen := relaytest.NewWalk(t, eventTransitions)
	inBubble(t, func(t *testing.T) { walkDeadLetters(t, seen) })
	synctest.Test(t, func(t *testing.T) { walkHold(t, seen) })
	seen.Whole()
}

func walkDeadLetters(t *testing.T, seen *relaytest.Walk) {
	w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
		c.BreakerOpen = 5 * time.Second
		c.Kafka = append(c.Kafka, relaytest.NoCompression())
	})
	defer w.close()
	w.takeTime()
	r, stop := w.run()
	by := dlq.Actor{Name: "ada", Reason: "test"}
	follow := func(all ...outbox.Event) (end func()) { return followEvents(seen, r.publisher.Load, all...) }
	time.Sleep(time.Second)
	aggregate := 0
	// three is an aggregate's first events, the second for another topic.
	three := func() (first, second, third outbox.Event) {
		aggregate++
		return relaytest.Event(aggregate, 1, "OrderCreated"), relaytest.Event(aggregate, 2, "OrderUpdated"), relaytest.Event(aggregate, 3, "OrderUpdated")
	}
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(e outbox.Event, state string) {
		t.Helper()
		if got := r.publisher.Load().EventState(&e); got != state {
			t.Errorf("event %d of %s is %s, want %s", e.Sequence, e.AggregateID, got, state)
		}
	}
	replay := func(id gocql.UUID) error { return w.deadLetters().Replay(t.Context(), id, by) }
	discard := func(id gocql.UUID) error { return w.deadLetters().Discard(t.Context(), id, by) }

	t.Log("all is well")
	a, b, c := three()
	end := follow(a, b, c)
	for _, e := range []outbox.Event{a, b, c} {
		w.write(e)
	}
	time.Sleep(5 * time.Second)
	end()

	t.Log("a topic is deleted under the producer")
	_, err := relayAdmin(r).DeleteTopics(t.Context(), "OrderCreated")
	try(err)
	a, _, _ = three()
	end = follow(a)
	w.write(a)
	time.Sleep(time.Minute)
	end()

	t.Log("a batch is refused, the event alone is not")
	a, _, _ = three()
	w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: a.Type, Err: kerr.InvalidRecord, Count: 1})
	end = follow(a)
	w.write(a)
	time.Sleep(5 * time.Second)
	end()

	t.Log("an event is refused for good, until it is not")
	a, b, c = three()
	mend := w.refuse(a.ID.UUID(), kerr.InvalidRecord)
	end = follow(a, b, c)
	w.write(a)
	w.write(b)
	time.Sleep(5 * time.Second)
	w.write(c)
	time.Sleep(5 * time.Second)
	try(replay(a.ID.UUID()))
	time.Sleep(5 * time.Second)
	want(a, publish.EventDead)
	want(b, publish.EventBlocked)
	want(c, publish.EventBlocked)
	mend()
	try(replay(a.ID.UUID()))
	time.Sleep(5 * time.Second)
	end()

	t.Log("an operator discards")
	a, b, c = three()
	mend = w.refuse(a.ID.UUID(), kerr.InvalidRecord)
	end = follow(a, b, c)
	for _, e := range []outbox.Event{a, b, c} {
		w.write(e)
	}
	time.Sleep(5 * time.Second)
	try(discard(b.ID.UUID()))
	try(discard(a.ID.UUID()))
	time.Sleep(5 * time.Second)
	end()
	mend()

	t.Log("a topic takes nothing")
	away := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "OrderUpdated", Err: kerr.NotEnoughReplicas, Count: -1})
	a, _, _ = three()
	a.Type = "OrderUpdated"
	b, _, _ = three()
	b.Type = "OrderUpdated"
	end = follow(a, b)
	w.write(a)
	for i := range 60 { // others are acknowledged, so the breaker stays closed
		x, _, _ := three()
		w.write(x)
		if i == 15 {
			w.write(b)
		}
		time.Sleep(250 * time.Millisecond)
	}
	away.Remove()
	time.Sleep(2 * time.Minute)
	end()

	t.Log("the broker is away")
	back := w.unreachable()
	a, _, _ = three()
	b, c, _ = three()
	end = follow(a, b, c)
	w.write(a)
	time.Sleep(20 * time.Second)
	for _, open := range []bool{false, true} { // so it has just opened again
		for (r.Status().Breaker.State == publish.BreakerOpen) != open {
			time.Sleep(10 * time.Millisecond)
		}
	}
	w.write(b)
	time.Sleep(time.Second)
	w.write(c)
	time.Sleep(time.Second)
	try(discard(b.ID.UUID()))
	time.Sleep(5 * time.Second)
	back()
	time.Sleep(time.Minute)
	// A replay by which the half-open breaker tried the broker is repeated after five minutes.
	for end := time.Now().Add(10 * time.Minute); r.Status().DeadLetters > 0 && time.Now().Before(end); {
		time.Sleep(time.Second)
	}
	end()

	t.Log("the broker goes away while an event waits for its next attempt")
	b, c, _ = three() // c waits for another topic
	end = follow(b, c)
	_, err = relayAdmin(r).DeleteTopics(t.Context(), "OrderCreated")
	try(err)
	w.write(b)
	w.write(c)
	for r.publisher.Load().EventState(&b) != publish.EventReturned {
		time.Sleep(time.Millisecond)
	}
	back = w.unreachable()
	time.Sleep(20 * time.Second)
	back()
	time.Sleep(time.Minute)
	end()

	if s := r.Status(); s.DeadLetters != 0 || s.InFlight != 0 {
		t.Errorf("%d dead letters and %d events are left", s.DeadLetters, s.InFlight)
	}
	if err := stop(); err != nil {
		t.Errorf("Run() error = %v", err)
	}
}

func walkHold(t *testing.T, seen *relaytest.Walk) {
	b := setup(t, nil)
	defer b.close()
	b.takeTime()
	e := relaytest.Event(99, 1, "OrderCreated")
	end := followEvents(seen, func() *publish.Publisher { return b.publisher }, e)
	defer end()
	refusals := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: -1})
	b.submit(e, nil)
	time.Sleep(time.Minute)
	refusals.Remove()
	time.Sleep(2 * b.cfg.HoldRetry)
}

func TestDesign_ShowsTheStatesOfEvents(t *testing.T) {
	t.Parallel()
	relaytest.CheckDiagram(t, "..", "event", eventTransitions)
}

// relayAdmin administers topics through the client of the running relay.
func relayAdmin(r *Relay) *kadm.Client {
	_, admin := r.publisher.Load().Kafka()
	return admin
}
