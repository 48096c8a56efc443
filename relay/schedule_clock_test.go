package relay

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// The scheduler dates outbox rows by the database's clock: rows that a host ten minutes behind
// dates by its own are older than what every reader reads, and were never published.
func TestRelay_ScheduledMessagesOfAHostThatIsBehind(t *testing.T) {
	for _, behind := range []time.Duration{0, 10 * time.Minute} {
		t.Run(behind.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 2 * time.Minute })
				defer w.close()
				time.Sleep(20 * time.Minute)
				_, stop := w.run()
				time.Sleep(time.Minute)
				now := func() time.Time { return time.Now().Add(-behind) }
				store := schedule.NewStore(w.session, gocql.LocalQuorum, 2*time.Second)
				s, err := schedule.New(schedule.Config{Store: store, Now: now})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- s.Run(ctx) }()
				m := &schedule.Message{ID: gocql.MustRandomUUID(), Topic: "reminders", Payload: []byte("x"), CreatedAt: now().UTC().Truncate(time.Millisecond), DeliverAt: now().Add(time.Second).UTC().Truncate(time.Millisecond)}
				if err := store.Put(t.Context(), m, now()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(15 * time.Minute)
				if _, err := store.Read(t.Context(), m.ID); !errors.Is(err, schedule.ErrNotFound) {
					t.Errorf("the message is not removed: %v", err)
				}
				cancel()
				<-done
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := len(w.consume("reminders")); n != 1 {
					t.Errorf("%d records, want 1", n)
				}
			})
		})
	}
}
