package relay

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
)

// Only breakers that running relays report as open or half-open are returned.
func TestOpenBreakers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		now := time.Now().UTC().Truncate(time.Millisecond)
		since := now.Add(-time.Minute)
		for instance, row := range map[string]struct {
			state, breaker string
			at             time.Time
		}{
			"open": {"running", "open", now}, "half-open": {"running", "half-open", now}, "closed": {"running", "closed", now},
			"stopped": {"stopped", "open", now}, "silent": {"running", "open", now.Add(-silence - time.Second)}, "membership": {"running", "", now},
		} {
			var h heartbeat
			h.State, h.Breaker.State, h.Breaker.Cause = row.state, row.breaker, "refused"
			if row.breaker != "" {
				h.Breaker.Since = &since
			}
			text, err := json.Marshal(&h)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.session.Query("INSERT INTO relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', 'outbox', 'outbox.outbox_messages', ?, ?, ?)",
				instance, row.at, string(text)).Exec(); err != nil {
				t.Fatal(err)
			}
		}
		got, err := OpenBreakers(t.Context(), w.session, "outbox", now)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[0].Instance != "half-open" || got[1].Instance != "open" {
			t.Fatalf("OpenBreakers() = %+v, want the open and the half-open one", got)
		}
		if b := got[1]; b.Relay != "outbox" || b.Cause != "refused" || !b.Since.Equal(since) {
			t.Errorf("OpenBreakers() = %+v", b)
		}
	})
}
