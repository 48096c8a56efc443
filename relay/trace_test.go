package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A sampled event that becomes a dead letter has a span with the error class, and each
// failed replay has one; the replay that publishes it has one without an error.
func TestTraces_OfDeadLetters(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		exporter := tracetest.NewInMemoryExporter()
		w := newWorld(t, scyllafake.Config{Tokens: 4}, retryRefused(dlq.StrategyRule{Strategy: dlq.StrategyImmediate, Delays: []time.Duration{time.Minute}}))
		defer w.close()
		w.cfg.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "Away", Err: kerr.InvalidRecord, Count: -1})
		_, stop := w.run()
		all := relaytest.Events(2, 2, "Away")
		for i := range all {
			flags := "01"
			if all[i].AggregateID != all[0].AggregateID {
				flags = "00" // not sampled
			}
			all[i].Headers = map[string]string{outbox.HeaderTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-" + flags}
			w.write(all[i])
		}
		time.Sleep(90 * time.Second)
		refused.Remove()
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("Away"), all)
		got := make(map[string]int) // by event, class and status
		for _, s := range exporter.GetSpans() {
			class, id, by := "", "", ""
			for _, a := range s.Attributes {
				switch a.Key {
				case "error.type":
					class = a.Value.AsString()
				case "messaging.message.id":
					id = a.Value.AsString()
				case "outbox.captured":
					by = a.Value.AsString()
				}
			}
			seq := slices.IndexFunc(all, func(e outbox.Event) bool { return e.ID.String() == id && e.AggregateID == all[0].AggregateID })
			got[fmt.Sprintf("%d %s %s", seq, class, s.Status.Code)]++
			if s.Name != "send Away" || len(s.Links) != 1 || s.Status.Code == codes.Error && s.Status.Description == "" ||
				by != rows.CapturedTail && by != rows.CapturedSweep || !slices.Contains(s.Attributes, attribute.String("messaging.destination.name", "Away")) {
				t.Errorf("span %s has status %v, links %v and attributes %v", s.Name, s.Status, s.Links, s.Attributes)
			}
		}
		first, second := "0", "1"
		if all[1].AggregateID != all[0].AggregateID {
			second = "2"
		}
		if got[first+" refused Error"] < 2 || got[first+"  Unset"] != 1 || got[second+" behind Error"] != 1 || got[second+"  Unset"] != 1 || len(got) != 4 {
			t.Errorf("the spans by event are %v, want a dead letter and a failed replay of the first, a blocked event, and one publication of each", got)
		}
	})
}
