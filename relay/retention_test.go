package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Retention deletes dead letters without an archive; then a backfill reads all their
// rows again. It publishes none of them: neither the replayed
// events, nor the discarded, nor the failed ones.
func TestRetention_PublishesNothingAgain(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.Kafka = append(c.Kafka, relaytest.NoCompression())
			c.ConfidenceWindow = 30 * time.Second
			retryRefused(dlq.StrategyRule{Strategy: dlq.StrategyImmediate, Delays: []time.Duration{time.Second}, MaxReplays: 1})(c)
		})
		defer w.close()
		by := dlq.Actor{Name: "ada", Reason: "test"}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		all := relaytest.Events(3, 3, "OrderCreated")
		last := func(a int) outbox.Event { return all[6+a] } // nothing is behind it
		_, stop := w.run()
		for a, settle := range []func(outbox.Event){
			func(e outbox.Event) { must(w.deadLetters().Discard(t.Context(), e.ID.UUID(), by)) },
			func(e outbox.Event) { must(w.deadLetters().Replay(t.Context(), e.ID.UUID(), by)) },
			func(outbox.Event) {},
		} {
			end := w.refuse(last(a).ID.UUID(), kerr.InvalidRecord)
			for seq := range 3 {
				w.write(all[seq*3+a])
			}
			time.Sleep(time.Minute)
			end()
			settle(last(a))
			time.Sleep(10 * time.Second)
		}
		for a, want := range []dlq.Status{dlq.Resolved, dlq.Resolved, dlq.Failed} {
			if l, err := w.deadLetters().Read(t.Context(), last(a).ID.UUID()); err != nil || l.Status != want {
				t.Fatalf("the dead letter of aggregate %d is %s, %v, want %s", a, l.Status, err, want)
			}
		}
		time.Sleep(2 * time.Hour)
		s, err := archive.NewSweeper(archive.Config{Store: w.deadLetters(), Owner: "test", Resolved: time.Hour, Failed: time.Hour, Rate: 1e6})
		must(err)
		r, err := s.Sweep(t.Context())
		must(err)
		if r.Archived[dlq.Resolved] != 2 || r.Archived[dlq.Failed] != 1 {
			t.Fatalf("the sweep deleted %+v", r)
		}
		must(stop())
		scanAll(0)(&w.cfg)
		_, stop = w.run()
		time.Sleep(10 * time.Minute)
		if b := w.backfills(); len(b) != 2 {
			t.Errorf("%d backfills, want that of the first start and another", len(b))
		}
		must(stop())
		never := []outbox.Event{last(0), last(2)}
		relaytest.CheckOrder(t, w.consume("OrderCreated"), slices.DeleteFunc(slices.Clone(all), func(e outbox.Event) bool {
			return slices.ContainsFunc(never, func(n outbox.Event) bool { return n.ID == e.ID })
		}))
	})
}
