package otlp

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
)

// Nothing is exported unless the environment configures it; a wrong value is an error that
// names its variable and the supported values.
func TestEnabled(t *testing.T) {
	t.Parallel()
	const endpoint = "http://collector:4318"
	for _, tt := range []struct {
		environ map[string]string
		want    bool
		err     string
	}{
		{nil, false, ""},
		{map[string]string{endpointVariable: endpoint}, true, ""},
		{map[string]string{tracesEndpointVariable: endpoint}, true, ""},
		{map[string]string{exporterVariable: "otlp"}, true, ""},
		{map[string]string{exporterVariable: "none", endpointVariable: endpoint}, false, ""},
		{map[string]string{disabledVariable: "true", exporterVariable: "x"}, false, ""},
		{map[string]string{endpointVariable: endpoint, protocolVariable: "http/protobuf"}, true, ""},
		{map[string]string{protocolVariable: "grpc"}, false, ""}, // of metrics or logs of other software
		{map[string]string{exporterVariable: "zipkin"}, false, `OTEL_TRACES_EXPORTER="zipkin": use otlp or none`},
		{map[string]string{endpointVariable: endpoint, protocolVariable: "grpc"}, false, `OTEL_EXPORTER_OTLP_PROTOCOL="grpc": use http/protobuf`},
		{map[string]string{exporterVariable: "otlp", tracesProtocolVariable: "grpc"}, false, `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="grpc": use http/protobuf`},
	} {
		got, err := Enabled(func(name string) string { return tt.environ[name] })
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("Enabled(%v) = %t, %q, want %t, %q", tt.environ, got, text, tt.want, tt.err)
		}
	}
}

// Spans arrive at the endpoint of the environment, with the service and its attributes, at
// the latest at the shutdown.
func TestStart_Exports(t *testing.T) {
	var body bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces" && r.Header.Get("Authorization") == "Bearer x" {
			_, _ = io.Copy(&body, r.Body)
		}
	}))
	defer collector.Close()
	t.Setenv(endpointVariable, collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer x")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging")
	p, err := Start(t.Context(), "outbox-relay", "0.1.0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("t").Start(t.Context(), "send OrderCreated")
	span.End()
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"send OrderCreated", "outbox-relay", "0.1.0", "staging"} {
		if !strings.Contains(body.String(), want) {
			t.Errorf("the export does not contain %q: %q", want, body.String())
		}
	}
}

// OTEL_SERVICE_NAME replaces the name of the service. An export that fails is logged.
func TestStart_ServiceNameAndErrors(t *testing.T) {
	var body bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(&body, r.Body)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer collector.Close()
	t.Setenv(endpointVariable, collector.URL)
	t.Setenv("OTEL_SERVICE_NAME", "shop")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	var log logtest.Buffer
	p, err := Start(t.Context(), "outbox-relay", "0.1.0", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("t").Start(t.Context(), "x")
	span.End()
	for end := time.Now().Add(time.Minute); log.String() == "" && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if s := body.String(); !strings.Contains(s, "shop") || strings.Contains(s, "outbox-relay") {
		t.Errorf("the export is %q, want the service shop", s)
	}
	if s := log.String(); !strings.Contains(s, "component=opentelemetry") || !strings.Contains(s, "403") {
		t.Errorf("the log is %q, want the failed export", s)
	}
}
