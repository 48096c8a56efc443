package publish

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The span of a publication begins at the offer of the event and names its reader.
func TestRecord_SpanContainsTheCapture(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		exporter := tracetest.NewInMemoryExporter()
		b := setup(t, func(c *Config) {
			c.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
			c.BreakerFailures, c.BreakerMinCalls = 1000, 1000
		})
		defer b.close()
		end := relaytest.TakesNothing(b.cluster, "OrderCreated")
		began, want := time.Now(), make(map[string]string)
		for by, name := range FoundBy {
			e := relaytest.Event(by, 1, "OrderCreated")
			e.Headers = map[string]string{outbox.HeaderTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
			want[e.ID.String()] = name
			if v, err := b.publisher.Offer(t.Context(), Offer{Event: e, Written: 10, By: Source(by)}); v != Taken || err != nil {
				t.Fatalf("Offer() = %d, %v", v, err)
			}
		}
		time.Sleep(time.Second)
		end()
		b.drain(time.Minute)
		got := make(map[string]string)
		for _, s := range exporter.GetSpans() {
			id, by := "", ""
			for _, a := range s.Attributes {
				switch a.Key {
				case "messaging.message.id":
					id = a.Value.AsString()
				case "outbox.captured":
					by = a.Value.AsString()
				}
			}
			got[id] = by
			if !s.StartTime.Equal(began) || s.EndTime.Sub(began) < time.Second {
				t.Errorf("the span of an event by the %s lasts from %s to %s, want from its offer at %s", by, s.StartTime, s.EndTime, began)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("the spans name the readers %v, want %v", got, want)
		}
	})
}

// The headers that describe the publication follow the event's own headers, and contain
// only unusual values.
func TestRecord_ContainsTheTrace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		item    item
		breaker BreakerState
		want    []string
	}{
		{"by the tail", item{by: ByTail, attempts: 1}, BreakerClosed, []string{"outbox-captured=tail"}},
		{"by the sweep", item{by: BySweep, attempts: 1}, BreakerClosed, []string{"outbox-captured=sweep"}},
		{"by its key", item{by: ByKey, attempts: 1}, BreakerClosed, []string{"outbox-captured=key"}},
		{"by a backfill of what the log has too", item{by: ByBackfill, attempts: 1}, BreakerClosed, []string{"outbox-captured=backfill"}},
		{"by a backfill", item{by: ByBackfill, scanned: true, attempts: 1}, BreakerClosed, []string{"outbox-captured=backfill", "outbox-backfill=1"}},
		{"again", item{by: ByTail, attempts: 2}, BreakerClosed, []string{"outbox-captured=tail", "outbox-attempts=2"}},
		{"by a replay", item{by: BySweep, attempts: 1, earlier: 5}, BreakerClosed, []string{"outbox-captured=sweep", "outbox-attempts=6"}},
		{"as a probe", item{by: BySweep, attempts: 1}, BreakerHalfOpen, []string{"outbox-captured=sweep", "outbox-breaker=half-open"}},
		{"by a replay of a dead letter without the reader", item{by: byUnknown, attempts: 2, earlier: 1}, BreakerHalfOpen, []string{"outbox-attempts=3", "outbox-breaker=half-open"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			it := c.item
			it.topic, it.event = "T", relaytest.Event(1, 1, "OrderCreated")
			it.event.Headers = map[string]string{"traceparent": "x"}
			r := newRecord(&it, &Config{Settings: Settings{Source: "/shop"}}, c.breaker)
			own := outbox.AppendHeaders[kgo.RecordHeader](nil, &it.event, "/shop")
			var got []string
			for _, h := range r.Headers[len(own):] {
				got = append(got, h.Key+"="+string(h.Value))
			}
			if !slices.Equal(got, c.want) || r.Topic != "T" || string(r.Value) != string(it.event.Payload) || string(r.Key) != it.event.AggregateID.String() {
				t.Errorf("record() = %+v with %q, want %q", r, got, c.want)
			}
			e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
			if err != nil || e.Source != "/shop" || e.ID != it.event.ID || len(e.Headers) != 1 {
				t.Errorf("FromRecord() = %+v, %v, want the event without them", e, err)
			}
		})
	}
}

// Headers with the event's id follow the record's event: an edited dead letter has an id
// of its own. Read-back still finds the one of CloudEvents.
func TestRecord_HeadersOfTheID(t *testing.T) {
	t.Parallel()
	it := item{by: ByTail, attempts: 1, topic: "T", event: relaytest.Event(1, 1, "OrderCreated")}
	original := it.event.ID
	for _, edited := range []bool{false, true} {
		if edited {
			it.original, it.event.ID = original, outbox.NewID()
		}
		r := newRecord(&it, &Config{Settings: Settings{Source: "/shop"}, IDHeaders: []string{"id"}}, BreakerClosed)
		i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "id" })
		if i < 0 || string(r.Headers[i].Value) != it.event.ID.String() {
			t.Errorf("edited %t: record() has %q, want header id with %s", edited, r.Headers, it.event.ID)
		}
		if e, err := outbox.FromRecord(r.Key, r.Value, r.Headers); err != nil || e.ID != it.event.ID || e.OriginalID != it.original {
			t.Errorf("FromRecord() = %s, %s, %v, want %s in place of %s", e.ID, e.OriginalID, err, it.event.ID, it.original)
		}
	}
}

// newRecord returns the record of an item.
func newRecord(it *item, cfg *Config, breaker BreakerState) *kgo.Record {
	s := new(slot)
	s.fill(it, cfg, breaker)
	return &s.Record
}

// A record needs no allocation once a slot was used.
func TestRecord_UsuallyCostsNoAllocation(t *testing.T) { //nolint:paralleltest // concurrent tests would allocate
	cfg := &Config{Settings: Settings{Source: "/shop"}}
	for _, headers := range []map[string]string{nil, relaytest.BenchHeaders} {
		it := &item{by: ByTail, attempts: 1, topic: "T", event: relaytest.BenchEvent(1)}
		it.event.Headers = headers
		own := len(outbox.AppendHeaders[kgo.RecordHeader](nil, &it.event, "/shop"))
		s := new(slot)
		n := 0
		allocations := testing.AllocsPerRun(100, func() {
			it.key = it.key[:0] // as of a first attempt
			s.fill(it, cfg, BreakerClosed)
			n = len(s.Record.Headers)
		})
		if allocations != 0 || n != own+1 {
			t.Errorf("fill() makes %v allocations for %d headers, want none for the event's %d and one", allocations, n, own)
		}
	}
}
