package trace

import (
	"context"
	"log/slog"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// The attributes of log lines for their event, request and trace.
const (
	RequestIDAttr = "request_id"
	TraceIDAttr   = "trace_id"
)

type contextKey struct{}

// request identifies the request that a context belongs to.
type request struct{ id, trace string }

// With records in ctx the request in progress: its id, and its traceparent header as
// received, which is omitted if it is malformed. A span in ctx replaces the latter.
func With(ctx context.Context, requestID, parent string) context.Context {
	return context.WithValue(ctx, contextKey{}, request{id: requestID, trace: ID(parent)})
}

// RequestID returns the id of the request that ctx belongs to, empty without one.
func RequestID(ctx context.Context) string {
	r, _ := ctx.Value(contextKey{}).(request)
	return r.id
}

// ID returns the trace id of a traceparent header, empty if that is malformed.
func ID(parent string) string {
	if !validParent(parent) {
		return ""
	}
	return traceParent.FindStringSubmatch(parent)[2]
}

// Attrs returns the ids of the request and the trace that made an event, from its
// headers: one attribute that writes none, one or two.
func Attrs(headers map[string]string) slog.Attr {
	return attrs(headers[outbox.HeaderRequestID], ID(headers[outbox.HeaderTraceParent]))
}

func attrs(requestID, traceID string) slog.Attr {
	var out []slog.Attr
	if requestID != "" {
		out = append(out, slog.String(RequestIDAttr, requestID))
	}
	if traceID != "" {
		out = append(out, slog.String(TraceIDAttr, traceID))
	}
	return slog.GroupAttrs("", out...) // a group without a name writes its members inline
}

// Handler adds the ids of the request and of its trace to every line that is logged
// with the context of a request.
func Handler(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, line slog.Record) error {
	if r, ok := ctx.Value(contextKey{}).(request); ok {
		line = line.Clone()
		if span := oteltrace.SpanContextFromContext(ctx); span.IsValid() {
			r.trace = span.TraceID().String()
		}
		line.AddAttrs(attrs(r.id, r.trace))
	}
	return h.Handler.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(a []slog.Attr) slog.Handler { return handler{h.Handler.WithAttrs(a)} }

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
