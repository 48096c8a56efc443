package orders

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// An open breaker answers immediately without a request to the database; it
// closes when the database is back.
func TestService_BreakerOpensAndCloses(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	b := setup(t)
	opening := func(open time.Duration) (*Service, http.Handler) {
		s := b.another(t, func(c *Config) {
			c.Breaker = Breaker{Failures: 4, Open: open}
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		return s, newHandler(t, s, apiserver.Config{})
	}
	s, h := opening(time.Hour)
	closing, closes := opening(300 * time.Millisecond)
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
	for range 4 {
		world.Request(t, h, "POST", "/v1/orders", goodBody).MustBeProblem(t, 503, problemUnavailable)
		world.Request(t, closes, "POST", "/v1/orders", goodBody).MustBeProblem(t, 503, problemUnavailable)
	}
	if state, _ := s.guard.Breaker(); state != "open" {
		t.Fatalf("after 4 failures it is %s", state)
	}
	before := asked()
	for range 50 {
		r := world.Request(t, h, "POST", "/v1/orders", goodBody)
		r.MustBeProblem(t, 503, problemUnavailable)
		if r.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if n := asked() - before; n > 0 {
		t.Errorf("50 requests to an open breaker sent %d statements", n)
	}
	if r := world.Request(t, h, "GET", "/readyz", ""); r.Status != 503 {
		t.Errorf("readyz = %d %s, want 503", r.Status, r.Text)
	}
	b.heal(t)
	world.Eventually(t, "it is ready, and not open", func() bool {
		r := world.Request(t, closes, "GET", "/readyz", "")
		return r.Status == 200 && r.Body["breaker"] != "open" && r.Body["in_flight"] == 0.0
	})
	world.Eventually(t, "it closes", func() bool {
		_, err := closing.Get(t.Context(), o.ID)
		state, _ := closing.guard.Breaker()
		return err == nil && state == "closed"
	})
	if state, _ := s.guard.Breaker(); state != "open" {
		t.Errorf("before its time the other breaker is %s", state)
	}
	for _, want := range []string{"breaker opened", "half-open", "breaker closed"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not contain %q", want)
		}
	}
}

// A disconnected client is neither a defect nor an unavailable database,
// whether it waited for a place or for the database.
func TestHTTP_ACallerWhoHungUp(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	var log logtest.Buffer
	b := setup(t, func(c *Config) {
		c.Registerer = reg
		c.Limiter = fixedLimiter(t, 1)
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	})
	h := newHandler(t, b.Service, apiserver.Config{})
	hungUp := func(method, path, body string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != httpapi.StatusHungUp {
			t.Errorf("%s %s is noted as %d", method, path, w.Code)
		}
	}
	id := gocql.UUID{1}.String()
	hungUp("GET", "/v1/orders/"+id, "")
	hungUp("GET", "/v1/orders?customer_id=1", "")
	hungUp("GET", "/v1/orders/"+id+"/events", "")
	_, leave, err := b.guard.Enter(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	hungUp("POST", "/v1/orders", goodBody)
	hungUp("POST", "/v1/orders/"+id+"/cancel", "{}")
	leave()
	if log.String() != "" {
		t.Errorf("the log has %s", log.String())
	}
}
