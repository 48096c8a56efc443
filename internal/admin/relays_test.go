package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// A relay without heartbeats is not ready, whatever its last heartbeat; neither is a
// stopped one. All members of the response agree.
func TestRelays_SilentOnesAreNotReady(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	now := time.Now()
	say := func(name, status string, at time.Time) {
		t.Helper()
		if err := b.session.Query("INSERT INTO outbox.relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, 't', 'i', ?, ?)",
			name, at, status).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	const ready = `{"state":"running","ready":true,"problems":[]}`
	say("silent", ready, now.Add(-time.Hour))
	say("broken", `{"state":"running","ready":false,"problems":["the broker is away"]}`, now.Add(-time.Hour))
	say("stopped", `{"state":"stopped","ready":false,"problems":["the CDC reader is not running"]}`, now.Add(-time.Hour))
	say("well", ready, now.Add(time.Hour)) // its clock is ahead, and so it stays fresh
	say("older", `{"state":"running","ready":true}`, now.Add(time.Hour))
	var got struct {
		Relays []relayBody `json:"relays"`
	}
	b.ask(t, access.Viewer, "GET", "/v1/relays", "").into(t, 200, &got)
	want := map[string]struct {
		state         string
		silent, ready bool
		problems      []string
	}{
		"silent":  {"silent", true, false, []string{"no heartbeat since"}},
		"broken":  {"silent", true, false, []string{"no heartbeat since", "the broker is away"}},
		"stopped": {"stopped", false, false, []string{}},
		"well":    {"running", false, true, []string{}},
		"older":   {"running", false, true, []string{}},
	}
	if len(got.Relays) != len(want) {
		t.Fatalf("%d relays, want %d", len(got.Relays), len(want))
	}
	for _, r := range got.Relays {
		w := want[r.Name]
		if r.State != w.state || r.Silent != w.silent || r.Ready != w.ready || r.Problems == nil || len(r.Problems) != len(w.problems) {
			t.Errorf("%s is %s, silent %v, ready %v, problems %q; want %+v", r.Name, r.State, r.Silent, r.Ready, r.Problems, w)
			continue
		}
		for i, p := range r.Problems {
			if !strings.HasPrefix(p, w.problems[i]) {
				t.Errorf("%s has problem %q, want %q", r.Name, p, w.problems[i])
			}
		}
	}
}
