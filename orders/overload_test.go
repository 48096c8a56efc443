package orders

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixedLimiter returns a limiter with so many places.
func fixedLimiter(t testing.TB, places int) *Limiter {
	t.Helper()
	l, err := guard.NewLimiter(guard.LimiterConfig{Min: places, Max: places})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fill takes all places of l and the queue before them, until release is called.
func fill(t testing.TB, l *Limiter) (release func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for l.Full() == nil {
		before := l.Occupancy()
		wg.Go(func() {
			_, leave, err := l.Enter(ctx, 1)
			if err == nil {
				<-ctx.Done()
				leave()
			}
		})
		for l.Occupancy() == before {
			time.Sleep(10 * time.Microsecond)
		}
	}
	return func() { cancel(); wg.Wait() }
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a refused request is read")
	return 0, io.EOF
}

// A request without a place costs no authentication, no parsing and no statement. Health
// and documentation are served.
func TestHTTP_OverloadRefusesFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Limiter = fixedLimiter(t, 1) })
	_, hash := access.NewToken()
	gate, err := access.New(access.Config{Tokens: []access.Token{{Name: "a", Role: access.Operator, Hash: hash}}, FailuresPerMinute: 1})
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, b.Service, apiserver.Config{Gate: gate})
	release := fill(t, b.Limiter())
	hits := b.Fault(0, faults.Effect{Delay: time.Microsecond}, engine.OpRead, engine.OpSerialRead, engine.OpWrite, engine.OpLoggedBatch, engine.OpCAS)
	for _, r := range [][2]string{
		{"POST", "/v1/orders"}, {"GET", "/v1/orders?customer_id=1"}, {"POST", "/v1/orders/" + exampleID + "/cancel"},
	} {
		for range 3 { // a wrong token would be refused with 429 the second time
			req := httptest.NewRequest(r[0], r[1], unread{t})
			req.Header.Set("Authorization", "Bearer wrong")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			if w.Code != 503 || w.Header().Get("Retry-After") != "1" {
				t.Errorf("%s %s without a place = %d %v %s", r[0], r[1], w.Code, w.Header(), w.Body)
			}
		}
	}
	world.Request(t, h, "POST", "/v1/orders", goodBody).MustBeProblem(t, 503, httpapi.TypeOverloaded)
	if n := hits(); n > 0 {
		t.Errorf("refused requests sent %d statements", n)
	}
	for _, path := range []string{"/livez", "/readyz", "/openapi.json", "/asyncapi.json", "/docs", "/problems"} {
		if r := world.Request(t, h, "GET", path, ""); r.Status != 200 {
			t.Errorf("GET %s under overload = %d %s", path, r.Status, r.Text)
		}
	}
	release()
	world.Request(t, h, "POST", "/v1/orders", goodBody).MustBeProblem(t, 401, httpapi.TypeUnauthorized)
}

// Callers beyond the capacity repeat their requests with the same Idempotency-Key until
// they are served: each has one order with one event, whether it was refused or not, and
// no refused request left anything.
func TestHTTP_OverloadLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	const callers, each = 120, 3
	b := setup(t, func(c *Config) { c.Limiter = fixedLimiter(t, 2) }) // and 40 in the queue
	h := newHandler(t, b.Service, apiserver.Config{})
	b.fault(engine.OpLoggedBatch, 0, faults.Effect{Delay: time.Millisecond})
	var refused atomic.Int64
	ids := make([][]gocql.UUID, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := range each {
				for {
					r := world.Request(t, h, "POST", "/v1/orders", goodBody, "Idempotency-Key", fmt.Sprintf("%d-%d", i, n))
					if r.Status == http.StatusCreated {
						ids[i] = append(ids[i], r.ID(t))
						break
					}
					r.MustBeProblem(t, 503, httpapi.TypeOverloaded)
					if t.Failed() {
						return
					}
					refused.Add(1)
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	if refused.Load() == 0 {
		t.Error("nothing was refused: this is no overload")
	}
	all := slices.Concat(ids...)
	for _, id := range all {
		if s := b.readStored(t, id); s.order == nil || len(s.events) != 1 {
			t.Fatalf("order %s was accepted; stored are %+v", id, s)
		}
	}
	if n := b.Session.Query("SELECT id FROM orders").Iter().NumRows(); n != callers*each || len(all) != n {
		t.Errorf("%d orders are stored and %d were accepted, want %d", n, len(all), callers*each)
	}
	if o := b.Limiter().Occupancy(); o.Taken != 0 || o.Waiting != 0 {
		t.Errorf("%+v after all requests", o)
	}
}
