package guard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// fill takes the only place of l and the whole queue behind it, until the test ends.
func fill(t *testing.T, l *Limiter) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.taken = 1
	for l.mu.waiting < l.queueLocked(time.Now()) {
		l.mu.queue.PushBack(&waiter{places: 1, ready: make(chan struct{})})
		l.mu.waiting++
	}
}

// served is a handler that reads its body.
var served = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(w, r.Body)
})

func isLimited(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/") }

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a refused request is read")
	return 0, io.EOF
}

func TestShed_RefusesWithoutReadingTheBody(t *testing.T) {
	t.Parallel()
	l, reg := newFixedLimiter(t, 1)
	h := l.Shed(served, isLimited)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/orders", strings.NewReader("{}")))
	if w.Code != 200 || w.Body.String() != "{}" {
		t.Errorf("with a free place: %d %s", w.Code, w.Body)
	}
	fill(t, l)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/orders", unread{t}))
	var p httpapi.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	if w.Code != 503 || p.Status != 503 || p.Type != httpapi.TypeOverloaded || p.Detail == "" || p.Title == "" ||
		w.Header().Get("Retry-After") != "1" || w.Header().Get("Content-Type") != httpapi.ProblemContentType {
		t.Errorf("without a place: %d %v %s", w.Code, w.Header(), w.Body)
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", http.NoBody))
	if w.Code != 200 {
		t.Errorf("a request that is not limited: %d", w.Code)
	}
	if v := values(t, reg); v["outbox_requests_shed_total/queue_full"] != 1 {
		t.Errorf("metrics %v, want one shed", v)
	}
}

// A refusal keeps the connection: the next request is read after the body of the refused
// one.
func TestShed_KeepsTheConnection(t *testing.T) {
	t.Parallel()
	l, _ := newFixedLimiter(t, 1)
	s := httptest.NewServer(l.Shed(served, isLimited))
	defer s.Close()
	fill(t, l)
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the test has read what it needs
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	send := func(format string, args ...any) {
		t.Helper()
		if _, err := fmt.Fprintf(c, format, args...); err != nil {
			t.Fatal(err)
		}
	}
	receive := func() (int, string) {
		t.Helper()
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || resp.Close {
			t.Fatalf("%v, the connection closes: %v", err, resp.Close)
		}
		return resp.StatusCode, string(body)
	}
	const post = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
	for range 3 {
		send(post+"body", "/v1/orders")
		if status, _ := receive(); status != 503 {
			t.Errorf("without a place the request got %d", status)
		}
	}
	send(post+"next", "/other")
	if status, body := receive(); status != 200 || body != "next" {
		t.Errorf("the next request on the connection got %d %s", status, body)
	}
}

// Clients that repeat refused requests immediately are slowed down while requests with
// places wait for a processor, at most by maxRefusalDelay each, and no longer than that.
func TestShed_DelaysRefusalsWhileProcessorsAreBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFixedLimiter(t, 1)
		fill(t, l)
		h := l.Shed(served, isLimited)
		var longest time.Duration
		refusals := func(clients int) (n int) {
			var mu sync.Mutex
			var wg sync.WaitGroup
			end := time.Now().Add(time.Second)
			longest = 0
			for range clients {
				wg.Go(func() {
					for time.Now().Before(end) {
						began := time.Now()
						h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/orders", http.NoBody))
						mu.Lock()
						n, longest = n+1, max(longest, time.Since(began))
						mu.Unlock()
						time.Sleep(time.Millisecond)
					}
				})
			}
			wg.Wait()
			return n
		}
		if n := refusals(50); n != 50*1000 || longest > 0 {
			t.Errorf("%d refusals in a second and up to %s, want 50 clients not delayed", n, longest)
		}
		for range 50 {
			l.recordLag(5 * time.Millisecond)
		}
		if n := refusals(500); n > 3500 || longest < maxRefusalDelay || longest >= maxRefusalDelay+maxPace {
			t.Errorf("%d refusals in a second and up to %s, want 500 clients delayed by a quarter of a second", n, longest)
		}
		for range 50 {
			l.recordLag(0)
		}
		refusals(50)
		if n := refusals(50); n != 50*1000 || longest > 0 {
			t.Errorf("%d refusals in a second and up to %s, want no delay afterwards", n, longest)
		}
	})
}

// While refusals are delayed, a connection that keeps to Retry-After is refused immediately, and one
// that retries earlier is not. Connections for one request each gain nothing beyond a bounded number.
func TestShed_DelaysNoPatientConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFixedLimiter(t, 1)
		fill(t, l)
		for range 50 {
			l.recordLag(5 * time.Millisecond)
		}
		h := l.Shed(served, isLimited)
		refuse := func(from string) time.Duration {
			began := time.Now()
			r := httptest.NewRequest("POST", "/v1/orders", http.NoBody)
			r.RemoteAddr = from
			h.ServeHTTP(httptest.NewRecorder(), r)
			return time.Since(began)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				for ctx.Err() == nil {
					refuse(fmt.Sprintf("192.0.2.1:%d", i))
				}
			})
		}
		time.Sleep(3 * time.Second)
		for _, wait := range []time.Duration{retryAfter, retryAfter, 3 * retryAfter, retryAfter + time.Millisecond} {
			if took := refuse("192.0.2.2:1"); took > 0 {
				t.Errorf("a connection that keeps to Retry-After is refused after %s", took)
			}
			time.Sleep(wait)
		}
		refuse("192.0.2.2:1")
		for _, wait := range []time.Duration{0, retryAfter / 2, retryAfter - maxRefusalDelay - time.Millisecond} {
			time.Sleep(wait)
			if took := refuse("192.0.2.2:1"); took < maxRefusalDelay/2 {
				t.Errorf("a connection that retries %s after its refusal is refused after %s", wait, took)
			}
		}
		immediate, end := 0, time.Now().Add(5*time.Second)
		for i := 0; time.Now().Before(end); i++ {
			if refuse(fmt.Sprintf("192.0.2.3:%d", i)) == 0 {
				immediate++
			}
		}
		if immediate < 100 || immediate > 6*maxPatient {
			t.Errorf("%d connections for one request each are refused immediately in 5 s, want at most %d per second", immediate, maxPatient)
		}
		cancel()
		wg.Wait()
	})
}

func BenchmarkShed(b *testing.B) {
	l, err := NewLimiter(LimiterConfig{Min: 1, Max: 1})
	if err != nil {
		b.Fatal(err)
	}
	l.mu.taken, l.mu.waiting = 1, 1000
	h := l.Shed(served, isLimited)
	r := httptest.NewRequest("POST", "/v1/orders", http.NoBody)
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}
