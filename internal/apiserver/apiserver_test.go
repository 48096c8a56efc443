package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
)

// things returns an API with these routes.
func things(t *testing.T, routes ...func(huma.API)) API {
	t.Helper()
	g, err := guard.New(guard.Config{Name: "things", Timeout: time.Second, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return API{Name: "things", Title: "Things", Path: "/v1/things", Routes: routes, Guard: g, Ping: func(context.Context) error { return nil }}
}

// A path that the description has is not the value of a parameter of another one.
func TestServer_APathOfItsOwnIsNoParameter(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, *struct{}) (*struct{}, error) { return nil, nil }
	s, err := New(things(t, func(h huma.API) {
		huma.Register(h, huma.Operation{OperationID: "a", Method: http.MethodGet, Path: "/v1/things/{id}"}, func(context.Context, *struct {
			ID string `path:"id"`
		},
		) (*struct{}, error) {
			return nil, nil
		})
		huma.Register(h, huma.Operation{OperationID: "b", Method: http.MethodPost, Path: "/v1/things/batch"}, nothing)
	}), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{http.MethodGet, "/v1/things/1", 204, ""},
		{http.MethodPost, "/v1/things/batch", 204, ""},
		{http.MethodGet, "/v1/things/batch", 405, "POST"},
		{http.MethodOptions, "/v1/things/batch", 405, "POST"},
		{http.MethodPut, "/v1/things/1", 405, "GET, HEAD"},
	} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, "http://localhost"+tt.path, nil))
		if w.Code != tt.status || w.Header().Get("Allow") != tt.allow {
			t.Errorf("%s %s = %d, Allow %q; want %d, %q", tt.method, tt.path, w.Code, w.Header().Get("Allow"), tt.status, tt.allow)
		}
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{DrainDelay: -1}, {DrainTimeout: -1}, {ReadyTimeout: -1}} {
		if _, err := New(things(t), cfg); err == nil {
			t.Errorf("New(%+v) = nil, want an error", cfg)
		}
	}
}

// The tasks beside the server run until it refuses requests. Their error is that of Serve.
func TestServer_TasksEndWithTheLastRequest(t *testing.T) {
	t.Parallel()
	s, err := New(things(t), Config{DrainDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	failed := errors.New("failed")
	err = s.Serve(ctx, l, func(tasks context.Context) error {
		stop()
		<-tasks.Done()
		if ready, _ := s.Readiness(); ready {
			t.Error("the server is ready while it refuses requests")
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("Serve() = %v, want the error of the task", err)
	}
}
