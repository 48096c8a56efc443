package admin

import (
	"net/http"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// A request to an operation has a server span below the caller's, also if it is refused;
// health checks have none.
func TestServer_RequestsHaveSpans(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	b := setup(t, func(c *Config) { c.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)) })
	const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	b.ask(t, "", "GET", "/readyz", "", "traceparent", caller)
	b.ask(t, access.Viewer, "GET", "/v1/relays", "", "traceparent", caller)
	b.ask(t, "", "GET", "/v1/relays", "", "traceparent", caller)
	got := exporter.GetSpans()
	if len(got) != 2 {
		t.Fatalf("the requests have the spans %v, want 2", got)
	}
	for _, s := range got {
		if s.Name != "GET /v1/relays" || s.SpanKind != oteltrace.SpanKindServer || s.Parent.SpanID().String() != "b7ad6b7169203331" {
			t.Errorf("the request has the span %+v, want a server span below the caller's", s)
		}
	}
}

// /readyz lists the database nodes that do not respond, without authentication.
func TestServer_ReadinessNamesNodes(t *testing.T) {
	t.Parallel()
	var down nodes
	b := setup(t, func(c *Config) { c.Nodes = &down })
	for _, want := range []string{
		`{"status":"ready"}` + "\n",
		`{"status":"ready","database_nodes_down":["10.0.0.2"]}` + "\n",
	} {
		if a := b.ask(t, "", "GET", "/readyz", ""); a.code != http.StatusOK || string(a.body) != want {
			t.Errorf("/readyz = %d %s, want %s", a.code, a.body, want)
		}
		down = nodes{"10.0.0.2"}
	}
}

// nodes are the addresses of nodes that are down.
type nodes []string

func (n *nodes) Down() []string { return *n }
