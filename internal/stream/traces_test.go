package stream

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// Each event that is sent to a client has a span that is linked to the event's request, if
// that is sampled.
func TestTraces_OfBothTransports(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	b := setup(t, func(c *Config) { c.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)) })
	next, stop := openStream(t, serve(t, b.Hub)+"/v1/events/stream?topics=a", "")
	defer stop()
	next() // subscribed
	c := dialSocket(t, b.Hub)
	c.say(o{"type": "subscribe", "id": "one", "topics": []string{"a"}})
	c.hear("subscribed", 0)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	var sampled outbox.Event
	for _, flags := range []string{"00", "01"} {
		sampled = outbox.Event{
			ID: outbox.NewID(), AggregateID: outbox.NewID(), Sequence: 1, AggregateType: "thing", Type: "Made", Payload: []byte("{}"), CreatedAt: time.Now(),
			Headers: map[string]string{outbox.HeaderTraceParent: "00-" + trace + "-b7ad6b7169203331-" + flags},
		}
		r := &kgo.Record{Topic: "a", Key: sampled.Key(), Value: sampled.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &sampled, "/s")}
		if err := b.producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		c.hear("event", 0)
		var heard struct {
			EventID string `json:"event_id"`
		}
		if err := json.Unmarshal([]byte(next().data), &heard); err != nil || heard.EventID != sampled.ID.String() {
			t.Fatalf("the stream has event %q, %v", heard.EventID, err)
		}
	}
	world.Eventually(t, "both spans are ended", func() bool { return len(exporter.GetSpans()) >= 2 })
	var transports []string
	for _, s := range exporter.GetSpans() {
		if s.Name != "stream a" || len(s.Links) != 1 || s.Links[0].SpanContext.TraceID().String() != trace || s.Status.Code == codes.Error ||
			!slices.Contains(s.Attributes, attribute.String("messaging.message.id", sampled.ID.String())) {
			t.Errorf("span %s has status %v, links %v and attributes %v", s.Name, s.Status, s.Links, s.Attributes)
		}
		for _, a := range s.Attributes {
			if a.Key == "outbox.stream.transport" {
				transports = append(transports, a.Value.AsString())
			}
		}
	}
	slices.Sort(transports)
	if !slices.Equal(transports, []string{"sse", "websocket"}) {
		t.Errorf("events were sent over %q, want one over each transport", transports)
	}
}
