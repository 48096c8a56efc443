package httpapi

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// TraceRequests returns a middleware that records a server span for each request to an operation,
// a child of the caller's span. Streams, which last as long as their client, have none. With
// a nil provider the middleware does nothing. It comes first, so that its span covers the
// others.
func TraceRequests(provider oteltrace.TracerProvider) func(huma.Context, func(huma.Context)) {
	if provider == nil {
		return func(ctx huma.Context, next func(huma.Context)) { next(ctx) }
	}
	tracer := trace.Tracer(provider)
	return func(ctx huma.Context, next func(huma.Context)) {
		if ctx.Header("Upgrade") != "" || strings.Contains(ctx.Header("Accept"), "text/event-stream") {
			next(ctx)
			return
		}
		caller := propagation.MapCarrier{"traceparent": ctx.Header("Traceparent"), "tracestate": ctx.Header("Tracestate")}
		op, url, scheme, host := ctx.Operation(), ctx.URL(), "http", ctx.Host()
		if ctx.TLS() != nil {
			scheme = "https"
		}
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		below, span := tracer.Start(propagation.TraceContext{}.Extract(ctx.Context(), caller), op.Method+" "+op.Path,
			oteltrace.WithSpanKind(oteltrace.SpanKindServer),
			oteltrace.WithAttributes(semconv.HTTPRequestMethodKey.String(ctx.Method()), semconv.HTTPRoute(op.Path), semconv.URLScheme(scheme),
				semconv.URLPath(url.Path), semconv.ServerAddress(host), semconv.UserAgentOriginal(ctx.Header("User-Agent"))))
		defer span.End() // also if the handler panics
		next(huma.WithContext(ctx, below))
		status := ctx.Status()
		span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(status))
			span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
		}
	}
}
