package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The database's clock dates dead letters, their claims and their replays, whatever the clock of the
// relay's host: another host continues with them. A request by an operator of a host whose clock
// is wrong too is answered at once, and publishes the event once.
func TestDeadLetters_HostClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("ahead=", ahead), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.Kafka = append(c.Kafka, relaytest.NoCompression())
					c.ConfidenceWindow = 30 * time.Second
				})
				defer w.close()
				clock := w.db.Faults().Clock()
				time.Sleep(2 * time.Hour)
				clock.SetSkew(-ahead)
				now := clock.Now
				near := func(what string, at time.Time) {
					t.Helper()
					if d := now().Sub(at); d.Abs() > time.Minute {
						t.Errorf("%s is %s before the database's time", what, d)
					}
				}
				e := relaytest.Event(1, 1, "OrderCreated")
				end := w.refuse(e.ID.UUID(), kerr.InvalidRecord)
				_, stop := w.run()
				w.writeAt(e, now())
				time.Sleep(10 * time.Second)
				store := w.deadLetters()
				l, err := store.Read(t.Context(), e.ID.UUID())
				if err != nil {
					t.Fatal(err)
				}
				near("the first failure", l.FirstFailedAt)
				// A replay fails, another one does not.
				for _, want := range []dlq.Status{dlq.Suspended, dlq.Resolved} {
					if want == dlq.Resolved {
						end()
					}
					if err := store.Replay(t.Context(), e.ID.UUID(), dlq.Actor{Name: "ada"}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(20 * time.Second)
					if l, err = store.Read(t.Context(), e.ID.UUID()); err != nil || l.Status != want {
						t.Fatalf("Read() = %s, %v 20 s after the request, want %s", l.Status, err, want)
					}
					near("the last failure", l.LastFailedAt)
				}
				near("the resolution", l.ResolvedAt)
				history, err := store.History(t.Context(), e.ID.UUID())
				if err != nil {
					t.Fatal(err)
				}
				for _, h := range history {
					if h.By == "" || h.By == "ada" {
						continue // by the operator's clock
					}
					near(string(h.Action), h.At)
				}
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				_, stop = w.run()
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if got := w.consume("OrderCreated"); len(got) != 1 {
					t.Errorf("%d records of one event", len(got))
				}
			})
		})
	}
}
