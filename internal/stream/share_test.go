package stream

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// One principal has at most half of the subscriptions.
func TestHub_OnePrincipalHasHalfOfTheSubscriptions(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MaxSubscriptions = 4 })
	as := func(name string) error {
		s, err := b.Subscribe(access.With(t.Context(), access.Principal{Name: name, Role: access.Viewer}), Filter{Topics: []string{"a"}}, nil)
		if err == nil {
			t.Cleanup(s.Close)
		}
		return err
	}
	for range 2 {
		if err := as("ann"); err != nil {
			t.Fatal(err)
		}
	}
	if err := as("ann"); !errors.Is(err, ErrFull) {
		t.Errorf("Subscribe() of one who has half = %v, want %v", err, ErrFull)
	}
	if err := as("bob"); err != nil {
		t.Errorf("Subscribe() of another = %v", err)
	}
}

// Streams and sockets count for the principal of the middleware.
func TestHub_CountsByThePrincipalOfTheRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MaxSubscriptions = 2 })
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("watch", "1"))
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		next(huma.WithContext(ctx, access.With(ctx.Context(), access.Principal{Name: "ann", Role: access.Viewer})))
	})
	b.Register(api)
	for path, taken := range map[string]*access.Places{"/v1/events/stream?topics=a": b.places, "/v1/events/ws": b.sockets} {
		give, ok := taken.Take("ann")
		if !ok {
			t.Fatal("no place")
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != http.StatusTooManyRequests {
			t.Errorf("GET %s of one who has half = %d %s", path, w.Code, w.Body)
		}
		give()
	}
}

// A request that is closed before its subscription starts is not a failure of the broker,
// in metrics or in the log.
func TestStream_AnAbortedRequestIs499(t *testing.T) {
	t.Parallel()
	b := setup(t)
	status := 0
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("watch", "1"))
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) { next(ctx); status = ctx.Status() })
	b.Register(api)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(gone, http.MethodGet, "/v1/events/stream?topics=a", nil))
	if status != httpapi.StatusHungUp {
		t.Errorf("the status for metrics is %d, of the answer %d %s; want 499", status, w.Code, w.Body)
	}
}
