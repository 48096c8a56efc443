package messages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func TestHTTP_QuotaIsEachClients(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MessagesPerSecond = 0.001 })
	batch := `{"messages":[` + strings.TrimSuffix(strings.Repeat(`{"topic":"t"},`, MaxBatch), ",") + `]}`
	if r := world.Request(t, b.handler, "POST", "/v1/messages/batch", batch); r.Status != 202 {
		t.Fatalf("POST of a full batch = %d %.200s", r.Status, r.Text)
	}
	r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	if r.Status != 429 || r.Body["type"] != problemQuota || r.Header.Get("Retry-After") == "" {
		t.Errorf("POST beyond the quota = %d %v %s", r.Status, r.Header, r.Text)
	}
	other := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/messages", strings.NewReader(`{"topic":"t"}`))
	other.Host = "localhost"
	other.RemoteAddr = "192.0.2.77:5"
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, other)
	if w.Code != 202 {
		t.Errorf("POST of another client = %d %s", w.Code, w.Body)
	}
	if n := len(b.events(t)); n != MaxBatch+1 {
		t.Errorf("%d events, want %d", n, MaxBatch+1)
	}
}

// For any fault, a response of 202 means one event, a 503 with "nothing stored"
// none, and a retry with the same key leads to exactly one.
func TestHTTP_AnswersAreTrueWhenWritesFail(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	for name, tt := range map[string]struct {
		count  int
		effect faults.Effect
		kinds  []engine.OpKind
		status int
		stored bool
	}{
		"timed out once, not applied":  {1, faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1)}, []engine.OpKind{engine.OpWrite}, 202, true},
		"timed out once, applied":      {1, faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1), Fate: engine.FateApply}, []engine.OpKind{engine.OpWrite}, 202, true},
		"connection lost, applied":     {1, faults.Effect{Disconnect: true, Fate: engine.FateApply}, []engine.OpKind{engine.OpWrite}, 202, true},
		"never answers in time":        {0, faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1)}, []engine.OpKind{engine.OpWrite}, 503, false},
		"unavailable":                  {0, faults.Effect{Failure: faults.Unavailable(0, 1)}, []engine.OpKind{engine.OpWrite}, 503, false},
		"the key is undecided":         {1, faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2)}, []engine.OpKind{engine.OpCAS}, 202, true},
		"the key is decided, unseen":   {1, faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateDecided}, []engine.OpKind{engine.OpCAS}, 202, true},
		"the key cannot be decided on": {0, faults.Effect{Failure: faults.Unavailable(0, 1)}, []engine.OpKind{engine.OpCAS}, 503, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if tt.count == 0 {
				b.brief()
			}
			hits := b.Fault(tt.count, tt.effect, tt.kinds...)
			r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","payload":1}`, "Idempotency-Key", "k")
			if r.Status != tt.status || hits() == 0 {
				t.Errorf("POST = %d %s after %d faults, want %d", r.Status, r.Text, hits(), tt.status)
			}
			if r.Status == 503 && r.Header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
			b.Node.Faults().Clear()
			if n := len(b.events(t)); (n == 1) != tt.stored {
				t.Errorf("%d events, want stored %t", n, tt.stored)
			}
			var again world.Response
			for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if again = world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","payload":1}`, "Idempotency-Key", "k"); again.Status == 202 {
					break
				}
			}
			events := b.events(t)
			if _, ok := events[again.ID(t)]; !ok || len(events) != 1 {
				t.Errorf("after a retry there are %d events", len(events))
			}
			if tt.stored && again.ID(t) != r.ID(t) {
				t.Errorf("the retry has id %s, want %s", again.ID(t), r.ID(t))
			}
		})
	}
}

func TestHTTP_BreakerOpensAndCloses(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Breaker.Open = time.Hour })
	closing := b.another(t, func(c *Config) { c.Breaker.Open = 300 * time.Millisecond })
	b.brief()
	closing.cfg.WriteBudget = b.cfg.WriteBudget
	closes := newHandler(closing)
	hits := b.Fault(0, faults.Effect{Failure: faults.Unavailable(0, 1)}, engine.OpWrite)
	for range 10 {
		for _, h := range []http.Handler{b.handler, closes} {
			if r := world.Request(t, h, "POST", "/v1/messages", `{"topic":"t"}`); r.Status != 503 {
				t.Fatalf("POST = %d %s", r.Status, r.Text)
			}
		}
	}
	asked := hits()
	r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	if r.Status != 503 || r.Header.Get("Retry-After") == "" || r.Body["outcome_unknown"] != nil || hits() != asked {
		t.Errorf("POST with an open breaker = %d %v %s after %d database requests", r.Status, r.Header, r.Text, hits()-asked)
	}
	b.Node.Faults().Clear()
	world.Eventually(t, "the breaker closes", func() bool { return world.Request(t, closes, "POST", "/v1/messages", `{"topic":"t"}`).Status == 202 })
	if n := len(b.events(t)); n != 1 {
		t.Errorf("%d events, want one", n)
	}
}

// Reads use the breaker, too: it protects an unavailable database from them,
// and their successes close it.
func TestHTTP_ReadsHeedTheBreaker(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Breaker = Breaker{Failures: 3, Open: time.Hour} })
	closing := b.another(t, func(c *Config) { c.Breaker = Breaker{Failures: 3, Open: 300 * time.Millisecond} })
	closes := newHandler(closing)
	stored := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	hits := b.Fault(0, faults.Effect{Failure: faults.Unavailable(0, 1)}, engine.OpRead)
	paths := [][2]string{{"GET", "/v1/messages/" + stored.ID(t).String()}, {"GET", "/v1/messages?state=scheduled"}, {"DELETE", "/v1/messages/" + stored.ID(t).String()}}
	for range 3 {
		for _, h := range []http.Handler{b.handler, closes} {
			if r := world.Request(t, h, "GET", paths[0][1], ""); r.Status != 503 {
				t.Fatalf("GET = %d %s", r.Status, r.Text)
			}
		}
	}
	asked := hits()
	for _, p := range paths {
		if r := world.Request(t, b.handler, p[0], p[1], ""); r.Status != 503 || r.Header.Get("Retry-After") == "" || r.Body["outcome_unknown"] != nil {
			t.Errorf("%s %s with an open breaker = %d %v %s", p[0], p[1], r.Status, r.Header, r.Text)
		}
	}
	if n := hits() - asked; n > 0 {
		t.Errorf("%d database requests", n)
	}
	b.Node.Faults().Clear()
	world.Eventually(t, "the breaker closes", func() bool {
		r := world.Request(t, closes, "GET", paths[0][1], "")
		state, _ := closing.guard.Breaker()
		return r.Status == 200 && state == "closed"
	})
}

// Single messages and batches beyond the capacity are refused before any work;
// a batch takes at most half of the places.
func TestHTTP_ShedsLoad(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) {
		c.Limiter = fixedLimiter(t, 2)
		c.AttemptTimeout, c.WriteBudget = time.Minute, time.Minute
	})
	hits := b.Fault(2, faults.Effect{Freeze: true}, engine.OpWrite)
	batch := `{"messages":[{"topic":"t"},{"topic":"t"},{"topic":"t"}]}`
	var wg sync.WaitGroup
	stored := map[string]string{"/v1/messages/batch": batch, "/v1/messages": `{"topic":"t"}`}
	for path, body := range stored {
		wg.Go(func() {
			if r := world.Request(t, b.handler, "POST", path, body); r.Status != 202 {
				t.Errorf("POST %s with a place = %d %s", path, r.Status, r.Text)
			}
		})
	}
	world.Eventually(t, "all places are taken", func() bool { return hits() == 2 })
	ctx, cancel := context.WithCancel(t.Context())
	var queue sync.WaitGroup
	for b.guard.Limiter().Full() == nil {
		waiting := b.guard.Limiter().Occupancy().Waiting
		queue.Go(func() {
			if _, _, err := b.guard.Enter(ctx, 1); err == nil {
				t.Error("a third place is given away")
			}
		})
		world.Eventually(t, "it waits", func() bool { return b.guard.Limiter().Occupancy().Waiting > waiting })
	}
	for range 10 {
		for path, body := range stored {
			r := world.Request(t, b.handler, "POST", path, body)
			if r.Status != 503 || r.Header.Get("Retry-After") != "1" || r.Body["type"] != problemOverload {
				t.Errorf("POST %s without a place = %d %v %s", path, r.Status, r.Header, r.Text)
			}
		}
	}
	// The server refuses them before it checks the token, and the event streams are no requests
	// to the database.
	_, hash := access.NewToken()
	gate := must(access.New(access.Config{Tokens: []access.Token{{Name: "a", Role: access.Operator, Hash: hash}}}))
	server := must(apiserver.New(NewAPI(b.Service).HTTP(), apiserver.Config{Gate: gate})).Handler()
	for path, status := range map[string]int{"/v1/messages/batch": 503, "/v1/messages": 503, "/v1/events/stream": 404} {
		if r := world.Request(t, server, "POST", path, batch); r.Status != status {
			t.Errorf("POST %s to the server without a place = %d %s, want %d", path, r.Status, r.Text, status)
		}
	}
	cancel()
	queue.Wait()
	b.Node.Faults().Thaw()
	wg.Wait()
	if n := len(b.events(t)); n != 4 {
		t.Errorf("%d events, want the 4 of the requests that had a place", n)
	}
	if r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`); r.Status != 202 {
		t.Errorf("after the load: %d %s", r.Status, r.Text)
	}
}

// fixedLimiter returns a limiter with so many places.
func fixedLimiter(t testing.TB, places int) *Limiter {
	t.Helper()
	l, err := guard.NewLimiter(guard.LimiterConfig{Min: places, Max: places})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
