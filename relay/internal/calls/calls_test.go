package calls

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

func newTestCalls() *Calls {
	return New(Config{
		Circuit:        circuit.Config{Failures: 5, Rate: 0.5, Window: time.Minute, Open: 30 * time.Second, MinCalls: 20, Probes: 3},
		AttemptTimeout: 2 * time.Second, Attempts: 5, Logger: slog.New(slog.DiscardHandler), Metrics: circuit.NewMetrics("relay", "broker"),
	})
}

var errTest = errors.New("test")

// result makes one call that ends with err.
func (c *Calls) result(t *testing.T, err error) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	done, denied := c.breaker.Allow()
	if denied != nil {
		t.Fatalf("Allow() error = %v in state %s", denied, c.mu.status.State)
	}
	done(err)
}

// look returns the state of the breaker, which changes with time.
func (c *Calls) look() circuit.State {
	c.Check(time.Now(), 0)
	return c.State()
}

var breakerTransitions = []relaytest.Transition{
	{From: relaytest.Nowhere, To: circuit.Closed.String(), By: "the relay starts"},
	{From: circuit.Closed.String(), To: circuit.Open.String(), By: "5 failures in a row, or half of the calls of a minute"},
	{From: circuit.Open.String(), To: circuit.HalfOpen.String(), By: "30 s"},
	{From: circuit.HalfOpen.String(), To: circuit.Closed.String(), By: "3 probes succeed"},
	{From: circuit.HalfOpen.String(), To: circuit.Open.String(), By: "a probe fails"},
}

// Each transition of the breaker has the documented triggers, and no others.
func TestBreaker_Transitions(t *testing.T) {
	t.Parallel()
	seen := relaytest.NewWalk(t, breakerTransitions)
	defer seen.Whole()
	want := func(t *testing.T, c *Calls, s circuit.State, after string) {
		t.Helper()
		got := c.look()
		seen.See("the breaker", got.String())
		if got != s {
			t.Fatalf("the breaker is %s after %s, want %s", got, after, s)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := newTestCalls()
		for range 4 {
			c.result(t, errTest)
		}
		c.result(t, nil)
		for range 4 {
			c.result(t, errTest)
		}
		want(t, c, circuit.Closed, "four failures in a row, twice")
		c.result(t, errTest)
		want(t, c, circuit.Open, "five failures in a row")
		if !errors.Is(c.Status().Cause, errTest) {
			t.Errorf("cause = %v, want the last failure", c.Status().Cause)
		}
		if _, err := c.breaker.Allow(); err == nil {
			t.Error("an open breaker let a call through")
		}
		time.Sleep(30 * time.Second)
		want(t, c, circuit.Open, "30 s")
		time.Sleep(time.Millisecond)
		want(t, c, circuit.HalfOpen, "more than 30 s")
		c.result(t, nil)
		c.result(t, nil)
		want(t, c, circuit.HalfOpen, "two successes")
		c.result(t, errTest)
		want(t, c, circuit.Open, "a failure while it was half-open")
		time.Sleep(30*time.Second + time.Millisecond)
		want(t, c, circuit.HalfOpen, "30 s")
		var probes []func(error)
		for range 3 {
			done, err := c.breaker.Allow()
			if err != nil {
				t.Fatal(err)
			}
			probes = append(probes, done)
		}
		if _, err := c.breaker.Allow(); err == nil {
			t.Error("a half-open breaker let a fourth probe through")
		}
		for _, done := range probes {
			done(nil)
		}
		want(t, c, circuit.Closed, "three successes")
		if c.Status().Cause != nil {
			t.Errorf("cause = %v of a closed breaker", c.Status().Cause)
		}
	})
}

// The breaker opens at a failure rate of one half in the last minute, in any order, but
// not before BreakerMinCalls calls.
func TestBreaker_OpensAtARate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestCalls()
		for range 9 {
			c.result(t, errTest)
			c.result(t, nil)
		}
		if s := c.look(); s != circuit.Closed {
			t.Fatalf("%s after 18 calls, want closed below 20", s)
		}
		time.Sleep(2 * time.Minute) // the calls leave the window
		for range 9 {
			c.result(t, errTest)
			c.result(t, nil)
		}
		c.result(t, nil)
		if s := c.look(); s != circuit.Closed {
			t.Fatalf("%s after 9 failures of 19 calls, want closed", s)
		}
		c.result(t, errTest)
		if s := c.look(); s != circuit.Open {
			t.Fatalf("%s after 10 failures of 20 calls, want open", s)
		}
	})
}

func BenchmarkBreaker(b *testing.B) {
	b.Run("call", func(b *testing.B) { // worst case: one call per event
		c := newTestCalls()
		b.ReportAllocs()
		for b.Loop() {
			c.mu.Lock()
			done, err := c.breaker.Allow()
			if err != nil {
				b.Fatal(err)
			}
			done(nil)
			c.mu.Unlock()
		}
	})
	b.Run("event", func(b *testing.B) { // under load: many events share a call
		c := newTestCalls()
		b.ReportAllocs()
		var calls []*Call
		for b.Loop() {
			if calls = append(calls, c.Admit(time.Now())); len(calls) == 100 {
				for _, call := range calls {
					c.Answered(call, nil)
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
