package main

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// spansByName returns the exported spans by name.
func spansByName(exporter *tracetest.InMemoryExporter) map[string]tracetest.SpanStub {
	out := map[string]tracetest.SpanStub{}
	for _, s := range exporter.GetSpans() {
		out[s.Name] = s
	}
	return out
}

// spanAttributes returns the attributes of a span as text.
func spanAttributes(s *tracetest.SpanStub) map[attribute.Key]string {
	out := map[attribute.Key]string{}
	for _, a := range s.Attributes {
		out[a.Key] = a.Value.String()
	}
	return out
}

// An order that a traced caller creates has a span for the request, below the caller's, with
// the batch below it. The record, its publication, a received message and a pushed one
// are linked to the request.
func TestTraces_OneOrderEndToEnd(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	c, err := parseConfig(t, "relay: {confidence_window: 3s, session_timeout: 5m}", nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr)
	if err != nil {
		t.Fatal(err)
	}
	log, reg := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	c.Observe(reg, log)
	c.Tracer = provider
	c.OrdersAddr, c.HTTP.DrainDelay, c.Subscriptions.Addr = "127.0.0.1:0", 0, "127.0.0.1:0"
	session, err := c.Scylla.Session(c.Scylla.Keyspace)
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close(session)
	orders, err := app.StartOrders(t.Context(), c, session, nil, reg, log, c.ListenOrders)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = orders.Shutdown() }()
	subscriptions, err := app.StartSubscriptions(t.Context(), c, session, reg, log, c.ListenSubscriptions)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = subscriptions.Shutdown() }()
	consumer := &client.Client{URL: "http://" + subscriptions.Addr}
	for _, s := range []client.Subscription{
		{Name: "pulled", Topics: []string{"OrderCreated"}, Start: "earliest"},
		{Name: "pushed", Topics: []string{"OrderCreated"}, Start: "earliest", Push: &client.Push{To: "log"}},
	} {
		if _, err := consumer.Put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	confs, err := c.RelayConfigs()
	if err != nil {
		t.Fatal(err)
	}
	ofRelay := prometheus.NewRegistry()
	relays, err := app.NewSharing(c, confs, session, log, ofRelay, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relays.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	const trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+orders.Addr+"/v1/orders",
		strings.NewReader(`{"invoice":"536365","country":"United Kingdom","placed_at":"2010-12-01T08:26:00Z","currency":"GBP","lines":[{"sku":"71053","quantity":1,"unit_price":"2.50"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", "00-"+trace+"-"+caller+"-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("the order has status %s", resp.Status)
	}
	var message client.Delivery
	world.Eventually(t, "the message is received", func() bool {
		all, err := consumer.Receive(t.Context(), "pulled", client.ReceiveOptions{Max: 1, Wait: time.Second})
		if err != nil || len(all) == 0 {
			return false
		}
		message = all[0]
		return true
	})
	world.Eventually(t, "all spans are ended", func() bool {
		got := spansByName(exporter)
		return got["push pushed"].Name != "" && got["receive pulled"].Name != "" && got["send OrderCreated"].Name != ""
	})

	got := spansByName(exporter)
	request, batch := got["POST /v1/orders"], got["BATCH"]
	if request.SpanContext.TraceID().String() != trace || request.Parent.SpanID().String() != caller || request.SpanKind != oteltrace.SpanKindServer {
		t.Errorf("the request has the span %+v, want a server span below the caller's", request)
	}
	if a := spanAttributes(&request); a["http.route"] != "/v1/orders" || a["http.response.status_code"] != "201" {
		t.Errorf("the request has the attributes %v", a)
	}
	if batch.Parent.SpanID() != request.SpanContext.SpanID() || batch.SpanKind != oteltrace.SpanKindClient {
		t.Errorf("the batch has the span %+v, want a client span below the request's", batch)
	}
	if a := spanAttributes(&batch); a["db.system.name"] != "scylladb" || a["db.namespace"] != "outbox" || a["db.operation.batch.size"] != "2" {
		t.Errorf("the batch has the attributes %v", a)
	}
	if want := "00-" + trace + "-" + request.SpanContext.SpanID().String() + "-01"; message.Headers[outbox.HeaderTraceParent] != want {
		t.Errorf("the record has traceparent %s, want %s", message.Headers[outbox.HeaderTraceParent], want)
	}
	for name, want := range map[string]struct {
		kind       oteltrace.SpanKind
		operation  string
		attributes map[attribute.Key]string
	}{
		"send OrderCreated": {oteltrace.SpanKindClient, "send", map[attribute.Key]string{"messaging.destination.name": "OrderCreated", "messaging.message.id": message.EventID, "messaging.kafka.offset": "0", "outbox.captured": message.Headers[outbox.HeaderCaptured]}},
		"receive pulled":    {oteltrace.SpanKindClient, "receive", map[attribute.Key]string{"messaging.destination.subscription.name": "pulled", "messaging.batch.message_count": "1"}},
		"push pushed":       {oteltrace.SpanKindConsumer, "process", map[attribute.Key]string{"messaging.destination.subscription.name": "pushed", "messaging.message.id": message.EventID, "outbox.push.to": "log"}},
	} {
		span := got[name]
		if len(span.Links) != 1 || !span.Links[0].SpanContext.Equal(request.SpanContext.WithRemote(true)) || span.SpanKind != want.kind || span.Parent.SpanID() == request.SpanContext.SpanID() {
			t.Errorf("%s is the span %+v, want kind %s and a link to the request", name, span, want.kind)
		}
		a := spanAttributes(&span)
		if a["messaging.system"] != "kafka" || a["messaging.operation.type"] != want.operation {
			t.Errorf("%s has the attributes %v, want operation %s", name, a, want.operation)
		}
		for k, v := range want.attributes {
			if a[k] != v {
				t.Errorf("%s has %s=%q, want %q", name, k, a[k], v)
			}
		}
	}
	push := got["push pushed"]
	checkExemplars(t, prometheus.Gatherers{reg, ofRelay}, map[string]string{
		"outbox_http_request_duration_seconds": trace, "outbox_relay_publish_duration_seconds": trace,
		"outbox_relay_commit_to_publish_duration_seconds": trace, "outbox_subscription_push_duration_seconds": push.SpanContext.TraceID().String(),
	})
}

// checkExemplars checks that every histogram is a native one too, and that the named ones
// have exemplars of the traces.
func checkExemplars(t *testing.T, reg prometheus.Gatherer, traces map[string]string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil && h.Schema == nil {
				t.Errorf("%s is no native histogram", f.GetName())
			}
			for _, b := range m.GetHistogram().GetBucket() {
				for _, l := range b.GetExemplar().GetLabel() {
					seen[f.GetName()] = seen[f.GetName()] || l.GetName() == "trace_id" && l.GetValue() == traces[f.GetName()]
				}
			}
		}
	}
	for name := range traces {
		if !seen[name] {
			t.Errorf("%s has no exemplar of the trace", name)
		}
	}
}
