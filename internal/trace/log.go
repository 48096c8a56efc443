package trace

import (
	"context"
	"log/slog"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// The names under which log lines carry what they are about.
const (
	RequestIDAttr = "request_id"
	TraceIDAttr   = "trace_id"
)

type contextKey struct{}

// request is what a context knows of the request that it belongs to.
type request struct{ id, trace string }

// With notes in ctx which request is being answered: its id, and its traceparent
// header as it came, which is left out if it is malformed.
func With(ctx context.Context, requestID, parent string) context.Context {
	return context.WithValue(ctx, contextKey{}, request{id: requestID, trace: ID(parent)})
}

// RequestID is the id of the request that ctx belongs to, empty without one.
func RequestID(ctx context.Context) string {
	r, _ := ctx.Value(contextKey{}).(request)
	return r.id
}

// ID is the trace id of a traceparent header, empty if that is malformed.
func ID(parent string) string {
	if !validParent(parent) {
		return ""
	}
	return traceParent.FindStringSubmatch(parent)[2]
}

// Attrs are the ids of the request and the trace that made an event, as its
// headers tell them; one attribute that writes none, one or two.
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
	return slog.GroupAttrs("", out...) // without a name its members stand by themselves
}

// Handler adds to every line that is logged with the context of a request the
// ids of the request and of its trace.
func Handler(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, line slog.Record) error {
	if r, ok := ctx.Value(contextKey{}).(request); ok {
		line = line.Clone()
		line.AddAttrs(attrs(r.id, r.trace))
	}
	return h.Handler.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(a []slog.Attr) slog.Handler { return handler{h.Handler.WithAttrs(a)} }

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
