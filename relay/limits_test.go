package relay

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A limit of docs/promises.md: a relay without its stored rows about its topics publishes again.
func TestLimits_ARelayWithoutItsTables(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w *world){
		"restored to before": func(w *world) { w.exec("TRUNCATE outbox.relay_topics") },
		"nothing":            func(*world) {},
		"restored, but in Topics": func(w *world) {
			w.exec("TRUNCATE outbox.relay_topics")
			w.cfg.Topics = map[string]string{"OrderCreated": "OrderCreated"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
				defer w.close()
				_, stop := w.run()
				time.Sleep(10 * time.Minute)
				const n = 20
				for i := range n {
					w.write(relaytest.Event(i, 1, "OrderCreated"))
				}
				time.Sleep(5 * time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				lose(w)
				_, stop = w.run()
				time.Sleep(10 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				want := map[string]int{"restored to before": 2}[name]
				if got := len(w.consume("OrderCreated")); got != n*max(1, want) {
					t.Errorf("%d records of %d events", got, n)
				}
			})
		})
	}
}

// A limit of docs/promises.md: a number that was passed over is found by the next event of its
// aggregate, unless the relay has forgotten the aggregate, as after a start.
func TestLimits_ANumberPassedOverIsForgotten(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"remembered": 4, "restarted": 3, "forgotten": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow, c.MaxAggregates, c.DedupMemory = 20*time.Second, 20, 40*dedup.BytesPerEvent
				})
				defer w.close()
				_, stop := w.run()
				time.Sleep(time.Minute)
				write := func(seq int64, at time.Time) { w.writeAt(relaytest.Event(0, seq, "OrderUpdated"), at) }
				began := time.Now()
				write(1, began)
				write(3, began.Add(time.Second))
				time.Sleep(2 * time.Minute)
				switch name {
				case "restarted":
					if err := stop(); err != nil {
						t.Error(err)
					}
					_, stop = w.run()
				case "forgotten":
					for i := range 1000 {
						w.write(relaytest.Event(1+i, 1, "OrderCreated"))
						time.Sleep(time.Second)
					}
				}
				time.Sleep(time.Minute)
				write(2, began)
				time.Sleep(time.Minute)
				write(4, time.Now())
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if got := len(w.consume("OrderUpdated")); got != want {
					t.Errorf("%d of 4 events are published, want %d", got, want)
				}
			})
		})
	}
}
