package relay

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The position of a relay follows its sweep; it is not known before the first start, nor
// while a scan of the outbox table is unfinished.
func TestPassed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint = 5 * time.Second })
		defer w.close()
		passed := func() time.Time {
			t.Helper()
			cfg := w.cfg
			cfg.Session = w.session
			at, err := Passed(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		if at := passed(); !at.IsZero() {
			t.Errorf("before the first start: %s, want zero", at)
		}
		_, stop := w.run()
		time.Sleep(10 * time.Second)
		w.write(relaytest.Event(1, 1, "OrderCreated"))
		written := time.Now()
		time.Sleep(time.Minute)
		at, window := passed(), w.cfg.withDefaults().ConfidenceWindow
		if !at.After(written) || at.After(time.Now().Add(-window)) {
			t.Errorf("Passed() = %s, want after %s and before %s", at, written, time.Now().Add(-window))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := w.session.Query("INSERT INTO outbox.relay_backfills (relay, table_name, started_at, state) VALUES (?, ?, ?, 'running')",
			w.cfg.withDefaults().Name, "outbox."+w.cfg.withDefaults().Table, time.Now()).Exec(); err != nil {
			t.Fatal(err)
		}
		if at := passed(); !at.IsZero() {
			t.Errorf("during a scan: %s, want zero", at)
		}
	})
}
