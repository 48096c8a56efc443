package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// One principal has half of the live streams and of the expensive reads at most.
func TestServer_OnePrincipalHasHalf(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MaxListeners = 2 })
	b.listen(t)
	b.ask(t, access.Viewer, "GET", "/v1/live", "").problemIn(t, http.StatusTooManyRequests)
	if a := b.ask(t, access.Operator, "HEAD", "/v1/live", ""); a.code != http.StatusOK {
		t.Errorf("a stream of another = %d", a.code)
	}

	viewer := access.With(t.Context(), access.Principal{Name: "vic", Role: access.Viewer})
	reading, done := make(chan struct{}), make(chan struct{})
	for range maxHeavy / 2 {
		go func() {
			_ = b.ops.heavily(viewer, func() error { reading <- struct{}{}; <-done; return nil })
		}()
		<-reading
	}
	defer close(done)
	gone, cancel := context.WithCancelCause(viewer)
	go cancel(errors.New("enough"))
	if err := b.ops.heavily(gone, func() error { t.Error("one principal reads more than half"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("heavily() = %v", err)
	}
	late, end := context.WithTimeout(viewer, 0)
	defer end()
	if p, ok := errors.AsType[*problem](b.ops.heavily(late, func() error { return nil })); !ok || p.Type != httpapi.TypeTooManyReads || p.Status != http.StatusTooManyRequests {
		t.Errorf("of a read whose time ended while it waited for its turn the problem is %+v, want that others ran", p)
	}
	if err := b.ops.heavily(access.With(t.Context(), access.Principal{Name: "oli"}), func() error { return nil }); err != nil {
		t.Errorf("another principal: %v", err)
	}
}

// A request that its client has closed is neither a defect nor an unreachable database:
// its metric has 499.
func TestServer_AnAbortedRequestIs499(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(gone, http.MethodGet, "/v1/dead-letters", nil)
	r.Header.Set("Authorization", "Bearer "+b.tokens[access.Viewer])
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	if n := testutil.CollectAndCount(b.metrics.requests); w.Code != httpapi.StatusHungUp || n != 1 {
		t.Errorf("the answer is %d %s in %d series, want 499", w.Code, w.Body, n)
	}
	p, ok := b.ops.toProblem(gone, context.Canceled, true).(*problem)
	if !ok || p.Status != httpapi.StatusHungUp || !p.OutcomeUnknown {
		t.Errorf("of an aborted change: %+v, want 499 and that its outcome is unknown", p)
	}
}
