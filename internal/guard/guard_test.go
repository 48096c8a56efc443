package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

func setup(t *testing.T, change func(*Config)) (*Guard, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	cfg := Config{Name: "things", Timeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler), Registerer: reg}
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g, reg
}

// values returns the contents of a registry by name and labels.
func values(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

func TestMetrics_NameTheServiceAndAreBounded(t *testing.T) {
	t.Parallel()
	_, reg := setup(t, nil)
	want := []string{
		"outbox_breaker_changes_total/things/closed", "outbox_breaker_changes_total/things/half-open", "outbox_breaker_changes_total/things/open", "outbox_breaker_failures_total/things",
		"outbox_breaker_state/things/closed", "outbox_breaker_state/things/half-open", "outbox_breaker_state/things/open", "outbox_concurrency_in_use",
		"outbox_concurrency_limit", "outbox_concurrency_waiting", "outbox_requests_shed_total/queue_full", "outbox_requests_shed_total/waited_too_long",
	}
	if got := slices.Sorted(maps.Keys(values(t, reg))); !slices.Equal(got, want) {
		t.Errorf("metrics are %q, want %q", got, want)
	}
	if _, err := New(Config{Name: "things", Timeout: time.Second, Logger: slog.New(slog.DiscardHandler), Registerer: reg}); err == nil {
		t.Error("two guards of one name share a registry")
	}
}

// The rate is that of the last minute, evaluated with every failure.
func TestBreaker_RateOverASlidingMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		g, reg := setup(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		call := func(result error) {
			t.Helper()
			ctx, done, err := g.Call(t.Context())
			if err != nil {
				t.Fatalf("Call() = %v", err)
			}
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != 3*time.Second {
				t.Errorf("an attempt may take %s, want 3s", time.Until(end))
			}
			done(result)
			if ctx.Err() == nil {
				t.Error("the context of an attempt that is over has not ended")
			}
		}
		mustBe := func(want string) {
			t.Helper()
			if got, _ := g.Breaker(); got != want {
				t.Fatalf("the breaker is %s, want %s", got, want)
			}
		}
		// Nine failures of seventeen calls, then the wait makes them too old to count.
		// With them the eighth below would be one of seventeen of thirty-four.
		for i := range 9 {
			call(gocql.ErrTimeoutNoResponse)
			if i > 0 {
				call(nil)
			}
		}
		mustBe("closed")
		time.Sleep(61 * time.Second)
		for range 9 {
			call(nil)
		}
		for range 8 {
			call(gocql.ErrTimeoutNoResponse)
		}
		call(nil)
		mustBe("closed") // 8 of 18
		call(gocql.ErrTimeoutNoResponse)
		mustBe("closed") // 9 of 19: too few calls to judge, and below half
		call(context.Canceled)
		call(gocql.ErrTimeoutNoResponse)
		mustBe("open") // 10 of 20
		_, _, err := g.Call(t.Context())
		if !errors.Is(err, ErrOpen) || ClassifyFate(err) != cqlcode.Refused || !errors.Is(err, gocql.ErrTimeoutNoResponse) {
			t.Errorf("Call() = %v, want it refused, with the cause", err)
		}
		time.Sleep(time.Second)
		if got := g.RetryAfter(err, time.Second); got != 4*time.Second {
			t.Errorf("RetryAfter() = %s, want the 4s that it stays open", got)
		}
		if got := g.RetryAfter(gocql.ErrTimeoutNoResponse, time.Second); got != time.Second {
			t.Errorf("RetryAfter() of another error = %s, want what is usual", got)
		}
		time.Sleep(4*time.Second + time.Millisecond)
		mustBe("half-open")
		for range 3 {
			call(nil)
		}
		mustBe("closed")
		for range 10 { // in a row
			call(gocql.ErrTimeoutNoResponse)
		}
		mustBe("open")
		time.Sleep(5*time.Second + time.Millisecond)
		call(gocql.ErrTimeoutNoResponse)
		mustBe("open")
		v := values(t, reg)
		if v["outbox_breaker_state/things/open"] != 1 || v["outbox_breaker_state/things/closed"] != 0 || v["outbox_breaker_failures_total/things"] != 30 || v["outbox_breaker_changes_total/things/open"] != 3 || v["outbox_breaker_changes_total/things/closed"] != 1 {
			t.Errorf("metrics %v, want the breaker open for the third time", v)
		}
		for _, want := range []string{"breaker opened", "half-open", "breaker closed", "service=things", gocql.ErrTimeoutNoResponse.Error()} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q", want)
			}
		}
	})
}

// Half-open, a few calls probe. Other calls wait for their results: they proceed once
// the breaker closes, probe when a probe had no result, and are refused when a probe
// fails or none returns in a while.
func TestBreaker_HalfOpenCallsWaitForTheProbes(t *testing.T) {
	t.Parallel()
	hungUp, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		results []error // of the probes; one that is missing does not return
		calls   context.Context
		takes   time.Duration
		allowed int
	}{
		"succeed":        {[]error{nil, nil, nil}, nil, 30 * time.Millisecond, 5},
		"fail":           {[]error{nil, gocql.ErrNoConnections}, nil, 20 * time.Millisecond, 0},
		"no result":      {[]error{nil, context.Canceled}, nil, time.Second, 1},
		"no answer":      {nil, nil, time.Second, 0},
		"caller hung up": {nil, hungUp, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, _ := setup(t, func(c *Config) { c.Breaker.Failures = 1 })
				_, done, _ := g.Call(t.Context())
				done(gocql.ErrNoConnections)
				time.Sleep(5*time.Second + time.Millisecond)
				for i := range 3 {
					_, done, err := g.Call(t.Context())
					if err != nil {
						t.Fatalf("probe %d: %v", i, err)
					}
					if i < len(tt.results) {
						time.AfterFunc(time.Duration(i+1)*10*time.Millisecond, func() { done(tt.results[i]) })
					}
				}
				began, allowed := time.Now(), 0
				var mu sync.Mutex
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() {
						_, _, err := g.Call(cmp.Or(tt.calls, t.Context()))
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							allowed++
						} else if !errors.Is(err, ErrOpen) {
							t.Errorf("Call() = %v, want ErrOpen", err)
						}
					})
				}
				wg.Wait()
				if took := time.Since(began); allowed != tt.allowed || took != tt.takes {
					t.Errorf("%d of 5 calls are let through after %s, want %d after %s", allowed, took, tt.allowed, tt.takes)
				}
			})
		})
	}
}

// Errors of the caller do not count as failures of the database.
func TestBreaker_CallersFaultsDoNotCount(t *testing.T) {
	t.Parallel()
	g, _ := setup(t, func(c *Config) { c.Breaker.Failures = 1 })
	invalid := gocql.UnknownServerError{}.ErrorFrame
	invalid.Code = gocql.ErrCodeInvalid
	for _, err := range []error{context.Canceled, invalid, fmt.Errorf("append: %w", &outbox.InvalidEventError{})} {
		_, done, refused := g.Call(t.Context())
		if refused != nil {
			t.Fatal(refused)
		}
		done(err)
		if state, _ := g.Breaker(); state != "closed" {
			t.Errorf("%v opens the breaker", err)
		}
	}
}

func TestNew_RefusesBadBounds(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Name: "x", Breaker: Breaker{Rate: 2}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err == nil || !strings.Contains(err.Error(), "breaker") {
		t.Errorf("New() = %v, want the breaker named", err)
	}
}

// Lost connections to one node are no failures of the database, however many there are.
// A call for which no node is left is one.
func TestBreaker_LostConnectionsDoNotCount(t *testing.T) {
	t.Parallel()
	g, _ := setup(t, nil)
	fails := func(err error, times int) string {
		for range times {
			if _, done, e := g.Call(t.Context()); e == nil {
				done(err)
			}
		}
		state, _ := g.Breaker()
		return state
	}
	for _, err := range []error{io.EOF, net.ErrClosed, gocql.ErrConnectionClosed, &net.OpError{Op: "read", Err: syscall.ECONNRESET}} {
		if state := fails(fmt.Errorf("store: %w", err), 50); state != "closed" {
			t.Errorf("after 50 times %v it is %s", err, state)
		}
	}
	if state := fails(gocql.ErrNoConnections, 10); state != "open" {
		t.Errorf("after 10 statements for which there was no node it is %s", state)
	}
}
