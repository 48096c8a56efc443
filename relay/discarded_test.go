package relay

import (
	"fmt"
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
// though the broker would take it now, nor after a restart, nor by a scan of the table, also
// where the clock of the relay's host, which dates dead letters, is an hour behind the database's.
func TestDeadLetters_DiscardedAndRestarted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		restart, scan bool
		behind        time.Duration
	}{
		{false, false, 0}, {true, false, 0}, {true, true, 0}, {true, true, time.Hour},
	} {
		t.Run(fmt.Sprintf("restart %t, scan %t, clock behind by %s", tt.restart, tt.scan, tt.behind), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.Kafka = append(c.Kafka, relaytest.NoCompression())
					c.ConfidenceWindow = 30 * time.Second
				})
				defer w.close()
				clock := w.db.Faults().Clock()
				clock.SetSkew(tt.behind)
				all := relaytest.Events(3, 4, "OrderCreated")
				for i := range all {
					all[i].CreatedAt = clock.Now()
				}
				bad := all[3+1]
				end := w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
				_, stop := w.run()
				for _, e := range all[:9] {
					w.writeAt(e, clock.Now())
				}
				time.Sleep(5 * time.Second)
				end()
				if err := w.deadLetters().Discard(t.Context(), bad.ID.UUID(), dlq.Actor{Name: "ada"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if tt.restart {
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					if tt.scan {
						w.exec(cdcOff)
						w.exec(cdcOn)
					}
					_, stop = w.run()
				}
				for _, e := range all[9:] {
					w.writeAt(e, clock.Now())
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
