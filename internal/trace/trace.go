// Package trace defines the headers by which an event carries the request that made it:
// W3C trace context and the request's id. The relay copies these headers to the record
// and to the dead letter. The spans of publication and deliveries are linked to the trace
// context ([Messages]). Package otlp below it exports spans.
package trace

import (
	"context"
	"regexp"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// maxRequestID limits the length of a request id.
const maxRequestID = 255

// Headers returns the event headers of a request, nil for none. The trace context is that
// of the span in ctx or, without one, the received parent and state. Malformed values are
// omitted, as W3C Trace Context requires; tracestate is omitted without traceparent.
func Headers(ctx context.Context, parent, state, requestID string) map[string]string {
	if oteltrace.SpanContextFromContext(ctx).IsValid() {
		span := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, span)
		parent, state = span[outbox.HeaderTraceParent], span[outbox.HeaderTraceState]
	}
	var h map[string]string
	add := func(key, value string) {
		if h == nil {
			h = make(map[string]string, 3)
		}
		h[key] = value
	}
	if requestID != "" && len(requestID) <= maxRequestID && isASCII(requestID) {
		add(outbox.HeaderRequestID, requestID)
	}
	if validParent(parent) {
		add(outbox.HeaderTraceParent, parent)
		if validState(state) {
			add(outbox.HeaderTraceState, state)
		}
	}
	return h
}

// traceParent is version-format of W3C Trace Context; later versions may append more
// after a dash.
var traceParent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$`)

// maxTrace limits both headers; the standard requires at least 512 of tracestate.
const maxTrace = 512

func validParent(s string) bool {
	if len(s) > maxTrace {
		return false
	}
	m := traceParent.FindStringSubmatch(s)
	return m != nil && m[1] != "ff" && (m[1] != "00" || m[4] == "") &&
		strings.Trim(m[2], "0") != "" && strings.Trim(m[3], "0") != "" && isASCII(s)
}

func validState(s string) bool { return s != "" && len(s) <= maxTrace && isASCII(s) }

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
