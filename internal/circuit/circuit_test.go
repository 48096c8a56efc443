package circuit

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

var errDown = errors.New("the database is down")

// defaults is the configuration of a breaker that sets nothing.
var defaults = Config{}.WithDefaults()

// opened is a breaker with its log and the changes that it reported.
type opened struct {
	*Breaker
	metrics *Metrics
	log     bytes.Buffer
	changes []Status
}

func newBreaker(cfg Config) *opened {
	o := &opened{metrics: NewMetrics("orders", "database")}
	o.Breaker = New(cfg, slog.New(slog.NewTextHandler(&o.log, nil)), o.metrics, func(s Status) { o.changes = append(o.changes, s) })
	return o
}

// call makes n calls with a result, and returns how many were allowed.
func (o *opened) call(n int, result error) (allowed int) {
	for range n {
		if done, err := o.Allow(); err == nil {
			allowed++
			done(result)
		}
	}
	return allowed
}

func (o *opened) want(t *testing.T, what string, s State, cause error) {
	t.Helper()
	if got := o.Look(); got.State != s || !errors.Is(got.Cause, cause) || (cause == nil) != (got.Cause == nil) {
		t.Errorf("%s: the breaker is %v because of %v, want %v because of %v", what, got.State, got.Cause, s, cause)
	}
	for _, other := range states {
		want := 0.0
		if other == s {
			want = 1
		}
		if got := testutil.ToFloat64(o.metrics.State.WithLabelValues(other.String())); got != want {
			t.Errorf("%s: the metric of state %v is %v, want %v", what, other, got, want)
		}
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	if want := (Config{Failures: 10, Window: time.Minute, Rate: 0.5, MinCalls: 20, Open: 5 * time.Second, Probes: 3}); defaults != want {
		t.Errorf("the defaults are %+v, want %+v", defaults, want)
	}
	own := Config{Failures: 1, Window: time.Second, Rate: 1, MinCalls: 1, Open: time.Millisecond, Probes: 1}
	if own.WithDefaults() != own {
		t.Errorf("the defaults replace what is set: %+v", own.WithDefaults())
	}
	for name, tt := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"defaults":         {func(*Config) {}, true},
		"a rate of 1":      {func(c *Config) { c.Rate = 1 }, true},
		"one call":         {func(c *Config) { c.Failures, c.MinCalls, c.Probes = 1, 1, 1 }, true},
		"no failures":      {func(c *Config) { c.Failures = 0 }, false},
		"failures below 0": {func(c *Config) { c.Failures = -1 }, false},
		"no window":        {func(c *Config) { c.Window = 0 }, false},
		"no rate":          {func(c *Config) { c.Rate = 0 }, false},
		"a rate above 1":   {func(c *Config) { c.Rate = 1.01 }, false},
		"no calls":         {func(c *Config) { c.MinCalls = 0 }, false},
		"never open":       {func(c *Config) { c.Open = 0 }, false},
		"no probes":        {func(c *Config) { c.Probes = 0 }, false},
	} {
		c := defaults
		tt.change(&c)
		if err := c.Validate(); (err == nil) != tt.ok {
			t.Errorf("%s: Validate() = %v, want an error: %v", name, err, !tt.ok)
		}
	}
}

// Failures in a row open the breaker. A success between them, or a call that is not
// counted, does not count.
func TestBreaker_OpensAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	b := newBreaker(defaults)
	b.want(t, "new", Closed, nil)
	b.call(9, errDown)
	b.call(1, nil)
	b.call(9, errDown)
	b.call(50, ErrUncounted)
	b.want(t, "9 failures in a row", Closed, nil)
	b.call(1, errDown)
	b.want(t, "10 failures in a row", Open, errDown)
	if n := b.call(5, nil); n != 0 {
		t.Errorf("%d calls are allowed while the breaker is open", n)
	}
	if got := testutil.ToFloat64(b.metrics.Failures); got != 19 {
		t.Errorf("the metric counts %v failures, want 19", got)
	}
	if s := b.Look(); s.Why() != errDown || s.Since.IsZero() || len(b.changes) != 1 || b.changes[0] != s {
		t.Errorf("the status is %+v, the reported changes %+v", s, b.changes)
	}
}

// The share of failures opens it as well, once there are enough calls.
func TestBreaker_OpensAtAShareOfFailures(t *testing.T) {
	t.Parallel()
	b := newBreaker(Config{Failures: 1000, MinCalls: 20, Rate: 0.5}.WithDefaults())
	for range 9 {
		b.call(1, nil)
		b.call(1, errDown)
	}
	b.call(1, nil)
	b.want(t, "9 failures of 19 calls", Closed, nil)
	b.call(1, errDown)
	b.want(t, "10 failures of 20 calls", Open, errDown)

	b = newBreaker(Config{Failures: 1000}.WithDefaults())
	for range 30 {
		b.call(3, nil)
		b.call(2, errDown)
	}
	b.want(t, "2 failures of 5 calls", Closed, nil)
}

// Failures that are older than the window do not count.
func TestBreaker_ForgetsAfterTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(Config{Failures: 1000}.WithDefaults())
		b.call(19, errDown)
		time.Sleep(2 * time.Minute)
		b.call(1, errDown)
		b.want(t, "1 failure in the window", Closed, nil)
		b.call(19, errDown)
		b.want(t, "20 failures in the window", Open, errDown)
	})
}

// An open breaker allows probes after its time. All of them must succeed; a failure opens
// it again.
func TestBreaker_Probes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(defaults)
		if got := b.Left(); got != 0 {
			t.Errorf("a closed breaker is open for %v", got)
		}
		b.call(10, errDown)
		if got := b.Left(); got != 5*time.Second {
			t.Errorf("open for %v, want 5s", got)
		}
		time.Sleep(4 * time.Second)
		b.want(t, "after 4s", Open, errDown)
		if got := b.Left(); got != time.Second {
			t.Errorf("after 4s open for %v, want 1s", got)
		}
		time.Sleep(time.Second + time.Millisecond)
		b.want(t, "after 5s", HalfOpen, errDown)
		if got := b.Left(); got != 0 {
			t.Errorf("a half-open breaker is open for %v", got)
		}

		var probes []func(error)
		for range 3 {
			done, err := b.Allow()
			if err != nil {
				t.Fatalf("a probe is refused: %v", err)
			}
			probes = append(probes, done)
		}
		if _, err := b.Allow(); !errors.Is(err, ErrProbing) {
			t.Errorf("a fourth probe: %v, want %v", err, ErrProbing)
		}
		probes[0](nil)
		other := errors.New("another failure")
		probes[1](other)
		b.want(t, "a failed probe", Open, other)

		time.Sleep(5*time.Second + time.Millisecond)
		if n := b.call(2, nil); n != 2 {
			t.Errorf("%d probes are allowed, want 2", n)
		}
		b.want(t, "2 of 3 probes", HalfOpen, other)
		b.call(1, nil)
		b.want(t, "3 probes", Closed, nil)
		b.call(9, errDown)
		b.want(t, "9 failures after it closed", Closed, nil)

		var order []string
		for _, s := range b.changes {
			order = append(order, s.State.String())
		}
		if got := strings.Join(order, " "); got != "open half-open open half-open closed" {
			t.Errorf("the changes are %s", got)
		}
		for state, want := range map[State]float64{Open: 2, HalfOpen: 2, Closed: 1} {
			if got := testutil.ToFloat64(b.metrics.Changes.WithLabelValues(state.String())); got != want {
				t.Errorf("the metric counts %v changes to %v, want %v", got, state, want)
			}
		}
	})
}

// A call that was allowed before the breaker opened does not change it when it ends.
func TestBreaker_ALateResultChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBreaker(defaults)
	late, err := b.Allow()
	if err != nil {
		t.Fatal(err)
	}
	b.call(10, errDown)
	late(nil)
	b.want(t, "a late success", Open, errDown)
}

// The log has an entry for each change, with the target and the cause.
func TestBreaker_Logs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(defaults)
		b.call(10, errDown)
		time.Sleep(6 * time.Second)
		b.call(3, nil)
		for _, want := range []string{
			`level=WARN msg="breaker opened" before=database from=closed for=5s cause="the database is down"`,
			`level=INFO msg="breaker half-open" before=database open_for=6s cause="the database is down"`,
			`level=INFO msg="breaker closed" before=database cause_was="the database is down"`,
		} {
			if strings.Count(b.log.String(), want) != 1 {
				t.Errorf("the log does not contain once %s:\n%s", want, b.log.String())
			}
		}
	})
}

// A status without a cause has a reason nevertheless.
func TestStatus_Why(t *testing.T) {
	t.Parallel()
	if err := (Status{State: Open}).Why(); err == nil || errors.Is(err, errDown) {
		t.Errorf("Why() = %v without a cause", err)
	}
	if err := (Status{State: Open, Cause: errDown}).Why(); err != errDown {
		t.Errorf("Why() = %v, want %v", err, errDown)
	}
}

// All series exist from the beginning, and two services can register theirs.
func TestMetrics_StartAtZero(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	for _, service := range []string{"orders", "relay"} {
		for _, c := range NewMetrics(service, "database").Collectors() {
			if err := r.Register(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int)
	for _, f := range families {
		got[f.GetName()] = len(f.GetMetric())
	}
	for name, want := range map[string]int{"outbox_breaker_state": 6, "outbox_breaker_changes_total": 6, "outbox_breaker_failures_total": 2} {
		if got[name] != want {
			t.Errorf("%s has %d series, want %d", name, got[name], want)
		}
	}
}
