package guard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
)

// newFixedLimiter returns a limiter with so many places.
func newFixedLimiter(t *testing.T, places int) (*Limiter, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	l, err := NewLimiter(LimiterConfig{Registerer: reg, Min: places, Max: places})
	if err != nil {
		t.Fatal(err)
	}
	return l, reg
}

// mustEnter takes places.
func mustEnter(t *testing.T, l *Limiter, want int) (places int, leave func()) {
	t.Helper()
	places, leave, err := l.Enter(t.Context(), want)
	if err != nil {
		t.Fatalf("Enter(%d) = %v", want, err)
	}
	return places, leave
}

func TestLimiter_RefusesBadBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []LimiterConfig{{Min: -1, Max: 2}, {Min: 2, Max: 1}, {Max: 1}} {
		if _, err := NewLimiter(c); err == nil || !strings.Contains(err.Error(), "places") {
			t.Errorf("NewLimiter(%+v) = %v, want an error", c, err)
		}
	}
}

// Waiters get places in order of arrival, a request alone always gets its places, and no
// place stays taken in the end.
func TestLimiter_ServesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, reg := newFixedLimiter(t, 4)
		places, leave := mustEnter(t, l, 1000)
		if places != 2 {
			t.Fatalf("Enter(1000) = %d places, want half", places)
		}
		_, leave2 := mustEnter(t, l, 2)
		var order []int
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				_, leave := mustEnter(t, l, 1+i%2)
				order = append(order, i) // one after the other: each leaves before the next has enough
				time.Sleep(10 * time.Millisecond)
				leave()
			})
			synctest.Wait()
		}
		if o := l.Occupancy(); o != (Occupancy{Limit: 4, Taken: 4, Waiting: 9}) {
			t.Errorf("Occupancy() = %+v, want 4 taken and 9 waited for", o)
		}
		v := values(t, reg)
		if v["outbox_concurrency_limit"] != 4 || v["outbox_concurrency_in_use"] != 4 || v["outbox_concurrency_waiting"] != 9 {
			t.Errorf("metrics %v, want the occupancy", v)
		}
		leave()
		wg.Wait()
		leave2()
		if !slices.IsSorted(order) || len(order) != 6 {
			t.Errorf("they were served as %v, want in order of arrival", order)
		}
		if o := l.Occupancy(); o.Taken != 0 || o.Waiting != 0 {
			t.Errorf("%+v after all have left", o)
		}
	})
}

// A burst may queue as many requests as the database serves in burstWait; a queue that remains then
// is a standing queue and is limited to 2.5 ms, until there is no queue for burstWait.
func TestLimiter_QueuesBurstsButKeepsNoStandingQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, reg := newFixedLimiter(t, 4)
		_, leave := mustEnter(t, l, 1) // places that nobody returns
		_, leave2 := mustEnter(t, l, 1)
		_, leave3 := mustEnter(t, l, 1)
		_, leave4 := mustEnter(t, l, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		fill := func() (n int) {
			for ; l.Full() == nil; n++ {
				wg.Go(func() {
					_, leave, err := l.Enter(ctx, 1)
					if err == nil {
						leave()
					}
				})
				synctest.Wait()
			}
			return n
		}
		// 4 places and an assumed latency of 5 ms are 80 statements in 100 ms.
		if n := fill(); n != 80 {
			t.Errorf("%d wait in a burst, want 80", n)
		}
		var full *OverloadedError
		began := time.Now()
		if _, _, err := l.Enter(t.Context(), 1); !errors.As(err, &full) || time.Since(began) != 0 || full.RetryAfter != time.Second {
			t.Errorf("Enter() with a full queue = %v after %s, want it refused immediately", err, time.Since(began))
		}
		time.Sleep(burstWait)
		cancel()
		wg.Wait()
		ctx, cancel = context.WithCancel(t.Context())
		if n := fill(); n != 80 {
			t.Errorf("%d wait in the next burst, want 80: the first ended before it was found to be standing", n)
		}
		time.Sleep(burstWait)
		if l.Full() == nil { // this finds it to be standing
			t.Error("a queue of 80 that stands is not full")
		}
		cancel()
		wg.Wait()
		ctx, cancel = context.WithCancel(t.Context())
		if n := fill(); n != 2 {
			t.Errorf("%d wait in a standing queue, want the 2 of 2.5 ms", n)
		}
		cancel()
		wg.Wait()
		time.Sleep(burstWait)
		ctx, cancel = context.WithCancel(t.Context())
		if n := fill(); n != 80 {
			t.Errorf("%d wait in a burst after a pause, want 80", n)
		}
		time.Sleep(maxWait) // without an answer of the database they are refused
		wg.Wait()
		cancel()
		if v := values(t, reg); v["outbox_requests_shed_total/queue_full"] != 6 || v["outbox_requests_shed_total/waited_too_long"] != 80 {
			t.Errorf("metrics %v, want 6 shed for a full queue, 80 that waited", v)
		}
		for _, leave := range []func(){leave, leave2, leave3, leave4} {
			leave()
		}
		if o := l.Occupancy(); o.Taken != 0 || o.Waiting != 0 {
			t.Errorf("%+v after all have left", o)
		}
	})
}

// A caller that disconnects while it waits has the error of its context and leaves no gap.
func TestLimiter_ForgetsCallersThatDisconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, reg := newFixedLimiter(t, 1)
		_, leave := mustEnter(t, l, 1)
		gone, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := l.Enter(gone, 1); !errors.Is(err, context.Canceled) {
				t.Errorf("Enter() of a caller that disconnected = %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			_, leave := mustEnter(t, l, 1)
			leave()
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		leave()
		wg.Wait()
		if o := l.Occupancy(); o.Taken != 0 || o.Waiting != 0 {
			t.Errorf("%+v after all have left", o)
		}
		if v := values(t, reg); v["outbox_requests_shed_total/queue_full"]+v["outbox_requests_shed_total/waited_too_long"] != 0 {
			t.Errorf("metrics %v: a caller that disconnected counts as shed", v)
		}
	})
}

// Only the latency of answers counts. A database that refuses because of its load counts
// as one that does not answer.
func TestGuard_MeasuresAnswersOnly(t *testing.T) {
	t.Parallel()
	failed := func(code int) error {
		e := gocql.UnknownServerError{}.ErrorFrame
		e.Code = code
		return e
	}
	for name, tt := range map[string]struct {
		err    error
		counts int
		mean   time.Duration
	}{
		"success":    {nil, 1, time.Millisecond},
		"no row":     {gocql.ErrNotFound, 1, time.Millisecond},
		"timeout":    {gocql.ErrTimeoutNoResponse, 1, time.Millisecond},
		"overloaded": {failed(gocql.ErrCodeOverloaded), 1, 3 * time.Second},
		"invalid":    {failed(gocql.ErrCodeInvalid), 0, 0},
		"no node":    {gocql.ErrNoConnections, 0, 0},
		"canceled":   {context.Canceled, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, _ := setup(t, nil)
				_, done, err := g.Call(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
				done(tt.err)
				if w := g.limiter.mu.limit.window; w.calls != tt.counts || w.total != tt.mean {
					t.Errorf("%d calls of %s count, want %d of %s", w.calls, w.total, tt.counts, tt.mean)
				}
			})
		})
	}
}

// The queue of a fast database does not hold more than the memory of 1,024 requests.
func TestLimiter_BoundsTheQueueOfAFastDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFixedLimiter(t, 100)
		l.mu.limit.recent = 100 * time.Microsecond // 100,000 statements in burstWait
		l.mu.taken = 100
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		n := 0
		for ; l.Full() == nil; n++ {
			wg.Go(func() { _, _, _ = l.Enter(ctx, 1) })
			synctest.Wait()
		}
		cancel()
		wg.Wait()
		if n != 1024 {
			t.Errorf("%d wait, want 1024 at most", n)
		}
	})
}
