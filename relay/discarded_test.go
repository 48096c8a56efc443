package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// What an operator discarded is not published when the sweep comes to its row,
// though the broker would take it now, nor after a restart.
func TestDeadLetters_DiscardedAndRestarted(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for name, restart := range map[string]bool{"same relay": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.Kafka = append(c.Kafka, relaytest.NoCompression())
					c.ConfidenceWindow = 30 * time.Second
				})
				defer w.close()
				all := relaytest.Events(3, 4, "OrderCreated")
				bad := all[3+1]
				end := w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
				_, stop := w.run()
				for _, e := range all[:9] {
					w.write(e)
				}
				time.Sleep(5 * time.Second)
				end()
				if err := w.deadLetters().Discard(t.Context(), bad.ID.UUID(), dlq.Actor{Name: "ada"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if restart {
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					_, stop = w.run()
				}
				for _, e := range all[9:] {
					w.write(e)
				}
				time.Sleep(2 * time.Minute)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				relaytest.CheckOrder(t, w.consume("OrderCreated"), slices.DeleteFunc(slices.Clone(all), func(e outbox.Event) bool { return e.ID == bad.ID }))
			})
		})
	}
}
