package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/humatest"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A request to an operation has a span with its route and status, below the caller's; the
// handler sees it. Streams, other paths, and requests without a provider have none.
func TestTraced(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("t", "1"))
	api.UseMiddleware(TraceRequests(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	seen := false
	huma.Register(api, huma.Operation{OperationID: "get", Method: http.MethodGet, Path: "/v1/things/{id}"},
		func(ctx context.Context, in *struct {
			ID string `path:"id"`
		},
		) (*struct{}, error) {
			if seen = trace.SpanFromContext(ctx).IsRecording(); in.ID == "away" {
				return nil, huma.Error503ServiceUnavailable("away")
			}
			return nil, nil
		})
	for _, tt := range []struct {
		path, header, value string
		want                string
		status              int64
		code                codes.Code
	}{
		{path: "/v1/things/7", want: "GET /v1/things/{id}", status: 204},
		{path: "/v1/things/away", want: "GET /v1/things/{id}", status: 503, code: codes.Error},
		{path: "/nowhere"},
		{path: "/v1/things/7", header: "Accept", value: "text/event-stream"},
		{path: "/v1/things/7", header: "Upgrade", value: "websocket"},
	} {
		exporter.Reset()
		seen = false
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil)
		r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		if tt.header != "" {
			r.Header.Set(tt.header, tt.value)
		}
		mux.ServeHTTP(httptest.NewRecorder(), r)
		got := exporter.GetSpans()
		if seen != (tt.want != "") || len(got) != 0 && tt.want == "" || len(got) != 1 && tt.want != "" {
			t.Fatalf("GET %s %s %s has the spans %v, want %q", tt.path, tt.header, tt.value, got, tt.want)
		}
		if tt.want == "" {
			continue
		}
		status := int64(0)
		for _, a := range got[0].Attributes {
			if a.Key == "http.response.status_code" {
				status = a.Value.AsInt64()
			}
		}
		if got[0].Name != tt.want || status != tt.status || got[0].Status.Code != tt.code || got[0].Parent.SpanID().String() != "b7ad6b7169203331" {
			t.Errorf("GET %s has the span %+v, want %s with the status %d, %v", tt.path, got[0], tt.want, tt.status, tt.code)
		}
	}
}

// Without a provider a request has no span and no other context.
func TestTraced_Off(t *testing.T) {
	t.Parallel()
	ctx, called := humatest.NewContext(nil, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), httptest.NewRecorder()), false
	TraceRequests(nil)(ctx, func(next huma.Context) { called = next == ctx })
	if !called {
		t.Error("the middleware changes the context")
	}
}
