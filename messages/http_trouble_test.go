package messages

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

func TestHTTP_QuotaIsEachClients(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MessagesPerSecond = 0.001 })
	batch := `{"messages":[` + strings.TrimSuffix(strings.Repeat(`{"topic":"t"},`, MaxBatch), ",") + `]}`
	if r := request(t, b.handler, "POST", "/v1/messages/batch", batch); r.status != 202 {
		t.Fatalf("POST of a full batch = %d %.200s", r.status, r.text)
	}
	r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	if r.status != 429 || r.body["type"] != problemQuota || r.header.Get("Retry-After") == "" {
		t.Errorf("POST beyond the quota = %d %v %s", r.status, r.header, r.text)
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
			hits := b.fault(tt.count, tt.effect, tt.kinds...)
			r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","payload":1}`, "Idempotency-Key", "k")
			if r.status != tt.status || hits() == 0 {
				t.Errorf("POST = %d %s after %d faults, want %d", r.status, r.text, hits(), tt.status)
			}
			if r.status == 503 && r.header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
			b.node.Faults().Clear()
			if n := len(b.events(t)); (n == 1) != tt.stored {
				t.Errorf("%d events, want stored %t", n, tt.stored)
			}
			var again reply
			for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if again = request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","payload":1}`, "Idempotency-Key", "k"); again.status == 202 {
					break
				}
			}
			events := b.events(t)
			if _, ok := events[again.id(t)]; !ok || len(events) != 1 {
				t.Errorf("after a retry there are %d events", len(events))
			}
			if tt.stored && again.id(t) != r.id(t) {
				t.Errorf("the retry has id %s, want %s", again.id(t), r.id(t))
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
	hits := b.fault(0, faults.Effect{Failure: faults.Unavailable(0, 1)}, engine.OpWrite)
	for range 10 {
		for _, h := range []http.Handler{b.handler, closes} {
			if r := request(t, h, "POST", "/v1/messages", `{"topic":"t"}`); r.status != 503 {
				t.Fatalf("POST = %d %s", r.status, r.text)
			}
		}
	}
	asked := hits()
	r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	if r.status != 503 || r.header.Get("Retry-After") == "" || r.body["outcome_unknown"] != nil || hits() != asked {
		t.Errorf("POST with an open breaker = %d %v %s after %d database requests", r.status, r.header, r.text, hits()-asked)
	}
	b.node.Faults().Clear()
	eventually(t, "the breaker closes", func() bool { return request(t, closes, "POST", "/v1/messages", `{"topic":"t"}`).status == 202 })
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
	stored := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	hits := b.fault(0, faults.Effect{Failure: faults.Unavailable(0, 1)}, engine.OpRead)
	paths := [][2]string{{"GET", "/v1/messages/" + stored.id(t).String()}, {"GET", "/v1/messages?state=scheduled"}, {"DELETE", "/v1/messages/" + stored.id(t).String()}}
	for range 3 {
		for _, h := range []http.Handler{b.handler, closes} {
			if r := request(t, h, "GET", paths[0][1], ""); r.status != 503 {
				t.Fatalf("GET = %d %s", r.status, r.text)
			}
		}
	}
	asked := hits()
	for _, p := range paths {
		if r := request(t, b.handler, p[0], p[1], ""); r.status != 503 || r.header.Get("Retry-After") == "" || r.body["outcome_unknown"] != nil {
			t.Errorf("%s %s with an open breaker = %d %v %s", p[0], p[1], r.status, r.header, r.text)
		}
	}
	if n := hits() - asked; n > 0 {
		t.Errorf("%d database requests", n)
	}
	b.node.Faults().Clear()
	eventually(t, "the breaker closes", func() bool {
		r := request(t, closes, "GET", paths[0][1], "")
		state, _ := closing.guard.Breaker()
		return r.status == 200 && state == "closed"
	})
}

// Single messages and batches beyond the capacity are refused before any work;
// a batch takes at most half of the places.
func TestHTTP_ShedsLoad(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) {
		c.Load = Load{MaxInFlight: 2, MaxWaiting: 1, MaxWait: 50 * time.Millisecond}
		c.AttemptTimeout, c.WriteBudget = time.Minute, time.Minute
	})
	hits := b.fault(2, faults.Effect{Freeze: true}, engine.OpWrite)
	batch := `{"messages":[{"topic":"t"},{"topic":"t"},{"topic":"t"}]}`
	var wg sync.WaitGroup
	stored := map[string]string{"/v1/messages/batch": batch, "/v1/messages": `{"topic":"t"}`}
	for path, body := range stored {
		wg.Go(func() {
			if r := request(t, b.handler, "POST", path, body); r.status != 202 {
				t.Errorf("POST %s with a place = %d %s", path, r.status, r.text)
			}
		})
	}
	eventually(t, "all places are taken", func() bool { return hits() == 2 })
	var refused sync.WaitGroup
	for range 10 {
		for path, body := range stored {
			refused.Go(func() {
				r := request(t, b.handler, "POST", path, body)
				if r.status != 429 || r.header.Get("Retry-After") != "1" || r.body["type"] != problemOverload {
					t.Errorf("POST %s without a place = %d %v %s", path, r.status, r.header, r.text)
				}
			})
		}
	}
	refused.Wait()
	b.node.Faults().Thaw()
	wg.Wait()
	if n := len(b.events(t)); n != 4 {
		t.Errorf("%d events, want the 4 of the requests that had a place", n)
	}
	if n := testutil.ToFloat64(b.metrics.results.WithLabelValues(resultOverload)); n != 20 {
		t.Errorf("%v requests count as shed, want 20, read or unread", n)
	}
	if r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`); r.status != 202 {
		t.Errorf("after the load: %d %s", r.status, r.text)
	}
}
