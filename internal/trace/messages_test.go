package trace

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

func sampledHeaders() map[string]string { return map[string]string{outbox.HeaderTraceParent: parent} }

// Without tracing the publication of an event allocates nothing and reads no clock.
func TestMessages_OffCostsNothing(t *testing.T) {
	var off *Messages
	e := &outbox.Event{Headers: sampledHeaders()}
	if n := testing.AllocsPerRun(1000, func() {
		off.Published(e, "T", 1, 2, Capture{At: off.Now()})
		off.Failed(e, "T", "refused", "not allowed", 1, Capture{At: off.Now()})
		_ = off.Exemplar(e.Headers)
	}); n != 0 {
		t.Errorf("a publication without tracing allocates %g times", n)
	}
	if !off.Now().IsZero() || NewMessages(nil) != nil {
		t.Error("without a provider there is a clock or a tracer")
	}
	ctx, end := off.Push(t.Context(), &Pushed{Headers: sampledHeaders()})
	end(errors.New("refused"))
	if ctx != t.Context() {
		t.Error("a push without tracing has another context")
	}
	off.Stream(&Streamed{Headers: sampledHeaders()})(nil)
	off.RecordReceive(t.Context(), "s", time.Time{}, nil)
}

// Only messages whose creation is sampled have spans; a batch is linked to each of them.
func TestMessages_FollowTheSampling(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	m := NewMessages(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)))
	unsampled := map[string]string{outbox.HeaderTraceParent: parent[:len(parent)-2] + "00"}
	malformed := map[string]string{outbox.HeaderTraceParent: "00-0-0-01"}
	for _, headers := range []map[string]string{nil, unsampled, malformed} {
		m.Published(&outbox.Event{Headers: headers}, "T", 0, 0, Capture{At: time.Now()})
		m.RecordReceive(t.Context(), "s", time.Now(), slices.Values([]map[string]string{headers}))
		m.Failed(&outbox.Event{Headers: headers}, "T", "refused", "not allowed", 1, Capture{At: time.Now()})
		m.Stream(&Streamed{Headers: headers})(nil)
		_, end := m.Push(t.Context(), &Pushed{Headers: headers})
		end(nil)
	}
	if got := exporter.GetSpans(); len(got) != 0 {
		t.Errorf("messages without a sampled creation have the spans %v", got)
	}
	second := map[string]string{outbox.HeaderTraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	m.RecordReceive(t.Context(), "s", time.Now(), slices.Values([]map[string]string{sampledHeaders(), unsampled, second}))
	if got := exporter.GetSpans(); len(got) != 1 || len(got[0].Links) != 2 {
		t.Errorf("a batch with two sampled messages has the spans %v, want one with two links", got)
	}
}

// The span of a publication lasts from the capture of the event; a failed push has the error.
func TestMessages_TimesAndErrors(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	m := NewMessages(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)))
	captured := time.Now().Add(-time.Hour)
	m.Published(&outbox.Event{Headers: sampledHeaders()}, "T", 3, 4, Capture{captured, "tail"})
	ctx, end := m.Push(t.Context(), &Pushed{Subscription: "s", Headers: sampledHeaders()})
	if !oteltrace.SpanFromContext(ctx).IsRecording() {
		t.Error("the plugin's context has no span")
	}
	end(errors.New("refused"))
	got := exporter.GetSpans()
	if len(got) != 2 {
		t.Fatalf("%d spans, want 2", len(got))
	}
	if !got[0].StartTime.Equal(captured) || got[0].EndTime.Sub(captured) < time.Hour {
		t.Errorf("the publication lasts from %s to %s, want from its capture until now", got[0].StartTime, got[0].EndTime)
	}
	if !slices.Contains(got[0].Attributes, attribute.String("outbox.captured", "tail")) {
		t.Errorf("the publication has the attributes %v, want the reader", got[0].Attributes)
	}
	if got[1].Status.Code != codes.Error || got[1].Status.Description != "refused" {
		t.Errorf("the failed push has the status %v", got[1].Status)
	}
}

// The span of a failed publication has the dead letter's error class, also without a topic
// and without a time of capture; that of a stream's event has the error of the write.
func TestMessages_Failures(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	m := NewMessages(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)))
	captured := time.Now().Add(-time.Hour)
	m.Failed(&outbox.Event{Headers: sampledHeaders()}, "T", "refused", "not allowed", 3, Capture{captured, "key"})
	m.Failed(&outbox.Event{Headers: sampledHeaders()}, "", "undecodable", "no topic", 0, Capture{})
	m.Stream(&Streamed{Transport: "sse", Topic: "T", Headers: sampledHeaders()})(errors.New("gone"))
	got := exporter.GetSpans()
	if len(got) != 3 || got[0].Name != "send T" || got[1].Name != "send" || got[2].Name != "stream T" {
		t.Fatalf("the spans are %v", got)
	}
	for i, want := range []string{"not allowed", "no topic", "gone"} {
		if got[i].Status.Code != codes.Error || got[i].Status.Description != want || len(got[i].Links) != 1 {
			t.Errorf("%s has status %v and links %v, want the error %q and one link", got[i].Name, got[i].Status, got[i].Links, want)
		}
	}
	if !slices.Contains(got[0].Attributes, attribute.String("error.type", "refused")) || !slices.Contains(got[0].Attributes, attribute.String("outbox.captured", "key")) || !slices.Contains(got[0].Attributes, attribute.Int("outbox.attempts", 3)) {
		t.Errorf("the failed publication has the attributes %v", got[0].Attributes)
	}
	if !got[0].StartTime.Equal(captured) || got[1].EndTime.Sub(got[1].StartTime) > time.Minute {
		t.Errorf("the failed publications last from %s to %s and from %s to %s", got[0].StartTime, got[0].EndTime, got[1].StartTime, got[1].EndTime)
	}
}

// An exemplar names the span of a request or, without spans, the trace of its caller; an
// unsampled request has none.
func TestExemplar(t *testing.T) {
	t.Parallel()
	ctx := With(t.Context(), "r", parent)
	if got := Exemplar(ctx); got["trace_id"] != "0af7651916cd43dd8448eb211c80319c" || len(got) != 1 {
		t.Errorf("without spans the exemplar is %v, want the caller's trace", got)
	}
	sampled, span := sdktrace.NewTracerProvider().Tracer("t").Start(ctx, "request")
	if got := Exemplar(sampled); got["trace_id"] != span.SpanContext().TraceID().String() || got["span_id"] != span.SpanContext().SpanID().String() {
		t.Errorf("the exemplar is %v, want the span", got)
	}
	unsampled, _ := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("t").Start(ctx, "request")
	if Exemplar(unsampled) != nil || Exemplar(t.Context()) != nil {
		t.Error("there is an exemplar without a sampled request")
	}
}

// Headers of an event name the span in progress; without one, the received trace context.
func TestHeaders_OfASpan(t *testing.T) {
	t.Parallel()
	ctx, span := sdktrace.NewTracerProvider().Tracer("t").Start(context.Background(), "request")
	c := span.SpanContext()
	want := map[string]string{"traceparent": "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-01", "x-request-id": "r"}
	if got := Headers(ctx, parent, "a=b", "r"); !maps.Equal(got, want) {
		t.Errorf("Headers() = %v, want %v", got, want)
	}
}
