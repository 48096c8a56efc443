package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
)

func TestTeardown_ClosesNewestFirstAndJoinsErrors(t *testing.T) {
	t.Parallel()
	var order []string
	var td Teardown
	td.AddFunc("first", func() { order = append(order, "first") })
	boom := errors.New("boom")
	td.Add("second", func() error { order = append(order, "second"); return boom })
	td.AddFunc("third", func() { order = append(order, "third") })

	err := td.Run()
	if got := strings.Join(order, " "); got != "third second first" {
		t.Errorf("closed %q, want newest first", got)
	}
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "close second") {
		t.Errorf("Run() error = %v, want it to name the step and wrap boom", err)
	}
	if err := td.Run(); err != nil || len(order) != 3 {
		t.Errorf("second Run() = %v after %v, want nothing to happen", err, order)
	}
}

func TestNewLogger_RefusesUnknownNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ level, format, want string }{
		{"loud", "text", "log level"},
		{"info", "xml", "log format"},
	} {
		if _, err := NewLogger(io.Discard, c.level, c.format); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("NewLogger(%q, %q) error = %v, want it to name the %s", c.level, c.format, err, c.want)
		}
	}
	var out bytes.Buffer
	log, err := NewLogger(&out, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("hidden")
	log.Warn("shown", "k", "v")
	if got := out.String(); strings.Contains(got, "hidden") || !strings.Contains(got, `"msg":"shown","k":"v"`) {
		t.Errorf("logged %q", got)
	}
}

func TestSignals_FirstSignalEndsTheContext(t *testing.T) {
	ctx, stop := Signals(t.Context())
	defer stop()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	var cause SignalError
	if err := context.Cause(ctx); !errors.As(err, &cause) || cause.Signal != syscall.SIGTERM {
		t.Errorf("cause = %v, want SIGTERM", err)
	}
}

func TestAdmin_ServesMetricsAndReadiness(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "things_total", Help: "Things."})
	reg.MustRegister(c)
	c.(prometheus.ExemplarAdder).AddWithExemplar(1, prometheus.Labels{"trace_id": "7"})
	ready := false
	h := OpsHandler(reg, func() (bool, any) { return ready, map[string]string{"breaker": "open"} })
	srv, err := ServeHTTP(t.Context(), "127.0.0.1:0", h, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+srv.Addr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "things_total 1") {
		t.Errorf("/metrics = %d %q", code, body)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+srv.Addr()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(body), `# {trace_id="7"} 1.0`) || !strings.HasSuffix(string(body), "# EOF\n") {
		t.Errorf("/metrics as OpenMetrics = %q, want an exemplar", body)
	}
	if code, _ := get("/livez"); code != 200 {
		t.Errorf("/livez = %d, want 200", code)
	}
	if code, body := get("/readyz"); code != 503 || !strings.Contains(body, `"breaker":"open"`) {
		t.Errorf("/readyz = %d %q, want 503 with the detail", code, body)
	}
	ready = true
	if code, _ := get("/readyz"); code != 200 {
		t.Errorf("/readyz when ready = %d, want 200", code)
	}
	if err := srv.Shutdown(time.Minute); err != nil {
		t.Errorf("Shutdown() error = %v", err)
	}
	if err := srv.With(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("With() after Shutdown() = %v, want nil", err)
	}
}

// A server that ends by itself ends the work bound to it, and logs that.
func TestServeHTTP_EndsBoundWork(t *testing.T) {
	t.Parallel()
	log := new(logtest.Buffer)
	srv, err := ServeHTTP(t.Context(), "127.0.0.1:0", http.NotFoundHandler(), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err = srv.With(t.Context(), func(ctx context.Context) error {
		if err := srv.ln.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Second):
			t.Error("what is bound to a dead server goes on")
		}
		if !errors.Is(context.Cause(ctx), net.ErrClosed) {
			t.Errorf("cause = %v, want that of the server", context.Cause(ctx))
		}
		return broken
	})
	if !errors.Is(err, net.ErrClosed) || !errors.Is(err, broken) || !strings.Contains(err.Error(), srv.Addr()) {
		t.Errorf("With() = %v, want both errors and the address", err)
	}
	if s := log.String(); !strings.Contains(s, "HTTP server ended unexpectedly") {
		t.Errorf("log: %q", s)
	}
}

// Profiles are served only where they are enabled.
func TestWithProfiles(t *testing.T) {
	t.Parallel()
	plain := OpsHandler(prometheus.NewRegistry(), func() (bool, any) { return true, nil })
	for _, tt := range []struct {
		handler http.Handler
		path    string
		want    int
	}{
		{plain, "/debug/pprof/heap", http.StatusNotFound},
		{WithProfiles(plain), "/debug/pprof/heap", http.StatusOK},
		{WithProfiles(plain), "/livez", http.StatusOK},
		{WithProfiles(plain), "/metrics", http.StatusOK},
	} {
		w := httptest.NewRecorder()
		tt.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, nil))
		if w.Code != tt.want {
			t.Errorf("GET %s = %d, want %d", tt.path, w.Code, tt.want)
		}
	}
}
