package publish

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

func newTestBreaker(change func(*Config)) *breaker {
	cfg := testConfig()
	cfg.Logger = slog.New(slog.DiscardHandler)
	if change != nil {
		change(&cfg)
	}
	return newBreaker(&cfg, NewMetrics(prometheus.NewRegistry()))
}

var errTest = errors.New("test")

// tell makes one call that ends with err.
func (b *breaker) tell(t *testing.T, err error) {
	t.Helper()
	done, denied := b.Allow()
	if denied != nil {
		t.Fatalf("Allow() error = %v in state %s", denied, b.status.State)
	}
	done(err)
}

var breakerTransitions = []relaytest.Transition{
	{From: relaytest.Nowhere, To: BreakerClosed.String(), By: "the relay starts"},
	{From: BreakerClosed.String(), To: BreakerOpen.String(), By: "5 failures in a row, or half of the calls of a minute"},
	{From: BreakerOpen.String(), To: BreakerHalfOpen.String(), By: "30 s"},
	{From: BreakerHalfOpen.String(), To: BreakerClosed.String(), By: "3 probes succeed"},
	{From: BreakerHalfOpen.String(), To: BreakerOpen.String(), By: "a probe fails"},
}

// Each transition of the breaker has the documented triggers, and no others.
func TestBreaker_Transitions(t *testing.T) {
	t.Parallel()
	seen := relaytest.NewWalk(t, breakerTransitions)
	defer seen.Whole()
	want := func(t *testing.T, b *breaker, s BreakerState, after string) {
		t.Helper()
		got := b.Look().State
		seen.See("the breaker", got.String())
		if got != s {
			t.Fatalf("the breaker is %s after %s, want %s", got, after, s)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := newTestBreaker(nil)
		for range 4 {
			b.tell(t, errTest)
		}
		b.tell(t, nil)
		for range 4 {
			b.tell(t, errTest)
		}
		want(t, b, BreakerClosed, "four failures in a row, twice")
		b.tell(t, errTest)
		want(t, b, BreakerOpen, "five failures in a row")
		if !errors.Is(b.status.Cause, errTest) {
			t.Errorf("cause = %v, want the last failure", b.status.Cause)
		}
		if _, err := b.Allow(); err == nil {
			t.Error("an open breaker let a call through")
		}
		time.Sleep(30 * time.Second)
		want(t, b, BreakerOpen, "30 s")
		time.Sleep(time.Millisecond)
		want(t, b, BreakerHalfOpen, "more than 30 s")
		b.tell(t, nil)
		b.tell(t, nil)
		want(t, b, BreakerHalfOpen, "two successes")
		b.tell(t, errTest)
		want(t, b, BreakerOpen, "a failure while it was half-open")
		time.Sleep(30*time.Second + time.Millisecond)
		want(t, b, BreakerHalfOpen, "30 s")
		var probes []func(error)
		for range 3 {
			done, err := b.Allow()
			if err != nil {
				t.Fatal(err)
			}
			probes = append(probes, done)
		}
		if _, err := b.Allow(); err == nil {
			t.Error("a half-open breaker let a fourth probe through")
		}
		for _, done := range probes {
			done(nil)
		}
		want(t, b, BreakerClosed, "three successes")
		if b.status.Cause != nil {
			t.Errorf("cause = %v of a closed breaker", b.status.Cause)
		}
	})
}

// The breaker opens at a failure rate of one half in the last minute, in any order, but
// not before BreakerMinCalls calls.
func TestBreaker_OpensAtARate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTestBreaker(func(c *Config) { c.BreakerMinCalls = 20 })
		for range 9 {
			b.tell(t, errTest)
			b.tell(t, nil)
		}
		if s := b.Look().State; s != BreakerClosed {
			t.Fatalf("%s after 18 calls, want closed below 20", s)
		}
		time.Sleep(2 * time.Minute) // the calls leave the window
		for range 9 {
			b.tell(t, errTest)
			b.tell(t, nil)
		}
		b.tell(t, nil)
		if s := b.Look().State; s != BreakerClosed {
			t.Fatalf("%s after 9 failures of 19 calls, want closed", s)
		}
		b.tell(t, errTest)
		if s := b.Look().State; s != BreakerOpen {
			t.Fatalf("%s after 10 failures of 20 calls, want open", s)
		}
	})
}

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
func TestBreaker_HoldsAndGoesOn(t *testing.T) {
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
		b.publisher.mu.Lock()
		for range 5 {
			done, err := b.publisher.breaker.Allow()
			if err != nil {
				t.Error(err)
				break
			}
			done(errTest)
		}
		b.publisher.mu.Unlock()
		b.publisher.nudge()
		if s := b.publisher.State().Breaker; s.State != BreakerOpen {
			t.Fatalf("the breaker is %s, want open", s.State)
		}
		time.Sleep(time.Minute)
		if s := b.publisher.State().Breaker; s.State != BreakerClosed {
			t.Errorf("the breaker is %s a minute later, want closed", s.State)
		}
	})
}

func BenchmarkBreaker(b *testing.B) {
	br := newTestBreaker(nil)
	b.Run("call", func(b *testing.B) { // worst case: one call per event
		b.ReportAllocs()
		for b.Loop() {
			done, err := br.Allow()
			if err != nil {
				b.Fatal(err)
			}
			done(nil)
		}
	})
	b.Run("event", func(b *testing.B) { // under load: many events share a call
		cfg := testConfig()
		cfg.Logger = slog.New(slog.DiscardHandler)
		p := &Publisher{cfg: &cfg, breaker: br, nudged: make(chan struct{}, 1)}
		b.ReportAllocs()
		var calls []*call
		for b.Loop() {
			c := p.admit()
			c.open++
			if calls = append(calls, c); len(calls) == 100 {
				for _, c := range calls {
					p.answered(c, nil)
				}
				calls = calls[:0]
			}
		}
	})
}

func TestDesign_ShowsTheStatesOfTheBreaker(t *testing.T) {
	t.Parallel()
	relaytest.CheckDiagram(t, "../../..", "breaker", breakerTransitions)
}
