package orders

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sony/gobreaker/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/faults"
)

// The rate is that of the last minute, looked at with every failure.
func TestBreaker_RateOverASlidingMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		b := newBreaker(Breaker{}.withDefaults(), slog.New(slog.DiscardHandler), m)
		call := func(result error) {
			done, err := b.call()
			if err != nil {
				t.Fatalf("call() = %v", err)
			}
			done(result)
		}
		mustBe := func(want gobreaker.State) {
			t.Helper()
			if got, _ := b.look(); got != want {
				t.Fatalf("the breaker is %s, want %s", got, want)
			}
		}
		// Nine failures of nineteen calls, then the wait makes them too old to count.
		for range 9 {
			call(gocql.ErrTimeoutNoResponse)
			call(nil)
		}
		mustBe(gobreaker.StateClosed)
		time.Sleep(61 * time.Second)
		for range 9 {
			call(nil)
		}
		for range 8 {
			call(gocql.ErrTimeoutNoResponse)
		}
		call(nil)
		mustBe(gobreaker.StateClosed) // 8 of 18
		call(gocql.ErrTimeoutNoResponse)
		mustBe(gobreaker.StateClosed) // 9 of 19: too few calls to judge, and below half
		call(context.Canceled)
		call(gocql.ErrTimeoutNoResponse)
		mustBe(gobreaker.StateOpen) // 10 of 20
		if _, err := b.call(); !errors.Is(err, errBreakerOpen) || fateOf(err) != fateRefused {
			t.Errorf("call() = %v, want it refused", err)
		}
		time.Sleep(5*time.Second + time.Millisecond)
		mustBe(gobreaker.StateHalfOpen)
		for range 3 {
			call(nil)
		}
		mustBe(gobreaker.StateClosed)
		for range 10 { // in a row
			call(gocql.ErrTimeoutNoResponse)
		}
		mustBe(gobreaker.StateOpen)
		time.Sleep(5*time.Second + time.Millisecond)
		call(gocql.ErrTimeoutNoResponse)
		mustBe(gobreaker.StateOpen)
		if got := testutil.ToFloat64(m.breakerState); got != 2 {
			t.Errorf("orders_breaker_state = %v, want 2", got)
		}
	})
}

// Open, it keeps requests from the database and answers at once; when the
// database is back it closes by itself.
func TestService_BreakerOpensAndCloses(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	var mu sync.Mutex
	b := setup(t, func(c *Config) {
		c.Breaker = Breaker{Failures: 4, Open: 300 * time.Millisecond}
		c.Logger = slog.New(slog.NewTextHandler(lockedWriter{&log, &mu}, nil))
	})
	h := newHandler(t, b.Service, ServerConfig{})
	o := b.mustCreate(t)
	var hits []func() int
	for _, kind := range []engine.OpKind{engine.OpRead, engine.OpSerialRead, engine.OpWrite, engine.OpLoggedBatch, engine.OpCAS} {
		hits = append(hits, b.fault(kind, 0, faults.Effect{Failure: faults.Unavailable(0, 1)}))
	}
	asked := func() (n int) {
		for _, f := range hits {
			n += f()
		}
		return n
	}
	for i := 0; ; i++ {
		request(t, h, "POST", "/v1/orders", goodBody).mustBeProblem(t, 503, problemUnavailable)
		if state, _ := b.store.breaker.look(); state == gobreaker.StateOpen {
			break
		}
		if i > 10 {
			t.Fatal("it does not open")
		}
	}
	// What follows is within the 300 ms, or probes: at most three statements each time.
	before := asked()
	for range 50 {
		r := request(t, h, "POST", "/v1/orders", goodBody)
		r.mustBeProblem(t, 503, problemUnavailable)
		if r.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if n := asked() - before; n > 25 {
		t.Errorf("50 requests to an open breaker asked the database %d times", n)
	}
	if r := request(t, h, "GET", "/readyz", ""); r.status != 503 {
		t.Errorf("readyz = %d %s, want 503", r.status, r.text)
	}
	b.heal(t)
	r := request(t, h, "GET", "/readyz", "")
	if r.status != 200 || r.body["breaker"] == "open" || r.body["in_flight"] != 0.0 {
		t.Errorf("readyz = %d %s, want it ready and not open", r.status, r.text)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		_, err := b.Get(t.Context(), o.ID)
		if state, _ := b.store.breaker.look(); err == nil && state == gobreaker.StateClosed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not close")
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"breaker opens", "half-open", "breaker closes"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

type lockedWriter struct {
	b  *strings.Builder
	mu *sync.Mutex
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// More than there is room for is refused at once or after a bounded wait, leaves
// nothing, and when the load is gone all is as before.
func TestService_ShedsLoad(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := setup(t, func(c *Config) {
		c.Registerer = reg
		c.Load = Load{MaxInFlight: 2, MaxWaiting: 3, MaxWait: 50 * time.Millisecond}
		c.AttemptTimeout, c.WriteBudget, c.RepairAfter = 10*time.Second, 10*time.Second, 10*time.Second
	})
	h := newHandler(t, b.Service, ServerConfig{})
	hits := b.fault(engine.OpLoggedBatch, 2, faults.Effect{Delay: 3 * time.Second})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if r := request(t, h, "POST", "/v1/orders", goodBody); r.status != 201 {
				t.Errorf("a request with a place got %d %s", r.status, r.text)
			}
		})
	}
	for hits() < 2 {
		time.Sleep(time.Millisecond)
	}
	for range 20 {
		wg.Go(func() {
			r := request(t, h, "POST", "/v1/orders", goodBody)
			r.mustBeProblem(t, 429, problemOverload)
			if r.header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After = %q, want 1", r.header.Get("Retry-After"))
			}
		})
	}
	wg.Wait()
	full, waited := testutil.ToFloat64(b.metrics.shed.WithLabelValues(shedFull)), testutil.ToFloat64(b.metrics.shed.WithLabelValues(shedWaited))
	if full+waited != 20 || waited < 1 || full < 1 {
		t.Errorf("shed: %v for a full queue and %v after a wait, want 20 of both kinds", full, waited)
	}
	if n := b.session.Query("SELECT id FROM orders").Iter().NumRows(); n != 2 {
		t.Errorf("%d orders, want 2", n)
	}
	if r := request(t, h, "POST", "/v1/orders", goodBody); r.status != 201 {
		t.Errorf("after the load: %d %s", r.status, r.text)
	}
	if n := len(b.room.places); n != 0 || b.room.waiting.Load() != 0 {
		t.Errorf("%d places are still taken, %d wait", n, b.room.waiting.Load())
	}
}
