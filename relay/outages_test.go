package relay

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
)

// Only breakers that running relays report as open or half-open are outages, and instances
// that no broker acknowledges; each with the time of its first failure.
func TestOutages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		now := time.Now().UTC().Truncate(time.Millisecond)
		since := now.Add(-time.Minute)
		for instance, row := range map[string]struct {
			state, breaker string
			at             time.Time
			sharing        *heartbeat.RelaySharing
		}{
			"open": {"running", "open", now, nil}, "half-open": {"running", "half-open", now, nil}, "closed": {"running", "closed", now, nil},
			"stopped": {"stopped", "open", now, nil}, "silent": {"running", "open", now.Add(-silence - time.Second), nil},
			"member": {"running", "closed", now, &heartbeat.RelaySharing{Joined: true}}, "joins": {"starting", "closed", now, &heartbeat.RelaySharing{}},
			"without a broker": {"starting", "closed", now, &heartbeat.RelaySharing{Error: "no route", Since: &since, Unreachable: true}}, "without a broker, stopped": {"stopped", "closed", now, &heartbeat.RelaySharing{Error: "no route"}},
		} {
			var h heartbeat.RelayStatus
			h.State, h.Breaker.State, h.Breaker.Cause, h.Breaker.Opened, h.Sharing = row.state, row.breaker, "refused", &since, row.sharing
			text, err := json.Marshal(&h)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.session.Query("INSERT INTO relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', 'outbox', 'outbox.outbox_messages', ?, ?, ?)",
				instance, row.at, string(text)).Exec(); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Outages(t.Context(), w.session, "outbox", now)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 3 || got[0].Instance != "half-open" || got[1].Instance != "open" || got[2].Instance != "without a broker" {
			t.Fatalf("Outages() = %+v, want the open one, the half-open one and the one without a broker", got)
		}
		if b := got[1]; b.Relay != "outbox" || b.Cause != "refused" || !b.Since.Equal(since) || b.Unreachable {
			t.Errorf("Outages() = %+v", b)
		}
		if b := got[2]; b.Cause != "no route" || !b.Since.Equal(since) || !b.Unreachable {
			t.Errorf("Outages() = %+v", b)
		}
	})
}
