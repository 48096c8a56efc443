package trace

import (
	"context"

	oteltrace "go.opentelemetry.io/otel/trace"
)

// Exemplar returns the labels of an exemplar of the request that ctx belongs to: its trace
// and span if they are sampled, or without spans the trace of its caller. It returns nil for
// none.
func Exemplar(ctx context.Context) map[string]string {
	if span := oteltrace.SpanContextFromContext(ctx); span.IsValid() {
		if !span.IsSampled() {
			return nil
		}
		return exemplar(span)
	}
	if r, _ := ctx.Value(contextKey{}).(request); r.trace != "" {
		return map[string]string{TraceIDAttr: r.trace}
	}
	return nil
}

func exemplar(span oteltrace.SpanContext) map[string]string {
	return map[string]string{TraceIDAttr: span.TraceID().String(), "span_id": span.SpanID().String()}
}
