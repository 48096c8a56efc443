package trace

import (
	"context"
	"iter"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// scope is the name of the instrumentation in spans.
const scope = "github.com/scylla-outbox/scylla-outbox"

// Messages records the spans of messages: their publication and their deliveries, by the
// semantic conventions for messaging. Each span is linked to the one that created the
// message, which the message names by its header traceparent, and is recorded only if that
// one is sampled. A nil Messages records nothing. It is safe for concurrent use.
type Messages struct{ tracer oteltrace.Tracer }

// NewMessages returns nil for a nil provider.
func NewMessages(provider oteltrace.TracerProvider) *Messages {
	if provider == nil {
		return nil
	}
	return &Messages{Tracer(provider)}
}

// Tracer returns the tracer of all spans of this project.
func Tracer(provider oteltrace.TracerProvider) oteltrace.Tracer {
	return provider.Tracer(scope, oteltrace.WithSchemaURL(semconv.SchemaURL))
}

// Fail records the error of a span's operation, unless it is nil.
func Fail(span oteltrace.Span, err error) {
	if err == nil {
		return
	}
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(semconv.ErrorType(err))
}

// Now returns the current time; the zero time for a nil Messages.
func (m *Messages) Now() time.Time {
	if m == nil {
		return time.Time{}
	}
	return time.Now()
}

// Capture is how the relay found an event: when, and by which reader, as in
// outbox.HeaderCaptured. By is empty if the reader is unknown.
type Capture struct {
	At time.Time
	By string
}

// Published records the publication of an event, from its capture to its acknowledgement
// now. It allocates nothing for a nil Messages.
func (m *Messages) Published(e *outbox.Event, topic string, partition int32, offset int64, captured Capture) {
	if m == nil {
		return
	}
	if span := m.send(e, topic, captured); span != nil {
		span.SetAttributes(semconv.MessagingDestinationPartitionID(strconv.Itoa(int(partition))), semconv.MessagingKafkaOffset(int(offset)))
		span.End()
	}
}

// Failed records an event that is not published, from its capture until now: its dead letter
// is stored, or a replay of that failed. class is the error class of the dead letter and text
// its error, attempts the number of attempts. topic is empty if the event has none. A zero
// time of the capture is now. It allocates nothing for a nil Messages.
func (m *Messages) Failed(e *outbox.Event, topic, class, text string, attempts int, captured Capture) {
	if m == nil {
		return
	}
	if captured.At.IsZero() {
		captured.At = time.Now()
	}
	if span := m.send(e, topic, captured); span != nil {
		span.SetStatus(codes.Error, text)
		span.SetAttributes(semconv.ErrorTypeKey.String(class), attribute.Int("outbox.attempts", attempts))
		span.End()
	}
}

// send begins the span of a publication at the time of the capture. It returns nil for an
// event whose creation is not sampled.
func (m *Messages) send(e *outbox.Event, topic string, captured Capture) oteltrace.Span {
	by, ok := creation(e.Headers)
	if !ok {
		return nil
	}
	// Client, not producer: the event has the context of its creation, not of this span.
	_, span := m.tracer.Start(context.Background(), strings.TrimSpace("send "+topic), oteltrace.WithSpanKind(oteltrace.SpanKindClient),
		oteltrace.WithTimestamp(captured.At), oteltrace.WithLinks(oteltrace.Link{SpanContext: by}),
		oteltrace.WithAttributes(semconv.MessagingSystemKafka, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"),
			semconv.MessagingMessageID(e.ID.String())))
	if topic != "" {
		span.SetAttributes(semconv.MessagingDestinationName(topic))
	}
	if captured.By != "" {
		span.SetAttributes(attribute.String("outbox.captured", captured.By))
	}
	return span
}

// Exemplar returns the labels of an exemplar of a message with the headers: the trace of its
// creation, if that is sampled. It returns nil, and allocates nothing, for a nil Messages.
func (m *Messages) Exemplar(headers map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	by, ok := creation(headers)
	if !ok {
		return nil
	}
	return exemplar(by)
}

// RecordReceive records a receive operation of a subscription, from its begin until now, with
// the headers of the messages that it returned. The span is a child of the one in ctx, if
// any.
func (m *Messages) RecordReceive(ctx context.Context, subscription string, began time.Time, messages iter.Seq[map[string]string]) {
	if m == nil {
		return
	}
	var links []oteltrace.Link
	n := 0
	for headers := range messages {
		n++
		if by, ok := creation(headers); ok {
			links = append(links, oteltrace.Link{SpanContext: by})
		}
	}
	if len(links) == 0 {
		return
	}
	_, span := m.tracer.Start(ctx, "receive "+subscription, oteltrace.WithSpanKind(oteltrace.SpanKindClient),
		oteltrace.WithTimestamp(began), oteltrace.WithLinks(links...),
		oteltrace.WithAttributes(semconv.MessagingSystemKafka, semconv.MessagingOperationTypeReceive, semconv.MessagingOperationName("receive"),
			semconv.MessagingDestinationSubscriptionName(subscription), semconv.MessagingBatchMessageCount(n)))
	span.End()
}

// Pushed is a message that a subscription delivers to its destination.
type Pushed struct {
	Subscription, To string
	Topic            string
	Partition        int32
	Offset           int64
	ID               string
	Headers          map[string]string
}

// Push begins the span of a delivery and returns a context with it. The caller ends it by
// end, once, with the error of the delivery.
func (m *Messages) Push(ctx context.Context, p *Pushed) (_ context.Context, end func(error)) {
	if m == nil {
		return ctx, func(error) {}
	}
	by, ok := creation(p.Headers)
	if !ok {
		return ctx, func(error) {}
	}
	ctx, span := m.tracer.Start(ctx, "push "+p.Subscription, oteltrace.WithSpanKind(oteltrace.SpanKindConsumer),
		oteltrace.WithLinks(oteltrace.Link{SpanContext: by}),
		oteltrace.WithAttributes(semconv.MessagingSystemKafka, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("push"),
			semconv.MessagingDestinationName(p.Topic), semconv.MessagingDestinationSubscriptionName(p.Subscription),
			semconv.MessagingDestinationPartitionID(strconv.Itoa(int(p.Partition))), semconv.MessagingKafkaOffset(int(p.Offset)),
			semconv.MessagingMessageID(p.ID), attribute.String("outbox.push.to", p.To)))
	return ctx, func(err error) {
		Fail(span, err)
		span.End()
	}
}

// Streamed is an event that is sent to a client of an event stream.
type Streamed struct {
	Transport string // sse or websocket
	Topic     string
	Partition int32
	Offset    int64
	ID        string
	Headers   map[string]string
}

// Stream begins the span of an event that is sent to a client. The caller ends it by end,
// once, with the error of the write: no error means that the connection took the event.
func (m *Messages) Stream(s *Streamed) (end func(error)) {
	if m == nil {
		return func(error) {}
	}
	by, ok := creation(s.Headers)
	if !ok {
		return func(error) {}
	}
	_, span := m.tracer.Start(context.Background(), "stream "+s.Topic, oteltrace.WithSpanKind(oteltrace.SpanKindConsumer),
		oteltrace.WithLinks(oteltrace.Link{SpanContext: by}),
		oteltrace.WithAttributes(semconv.MessagingSystemKafka, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("stream"),
			semconv.MessagingDestinationName(s.Topic), semconv.MessagingDestinationPartitionID(strconv.Itoa(int(s.Partition))),
			semconv.MessagingKafkaOffset(int(s.Offset)), semconv.MessagingMessageID(s.ID), attribute.String("outbox.stream.transport", s.Transport)))
	return func(err error) {
		Fail(span, err)
		span.End()
	}
}

// creation returns the span that created a message with the headers, and whether it is
// sampled.
func creation(headers map[string]string) (oteltrace.SpanContext, bool) {
	if headers[outbox.HeaderTraceParent] == "" {
		return oteltrace.SpanContext{}, false
	}
	c := oteltrace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(headers)))
	return c, c.IsSampled()
}
