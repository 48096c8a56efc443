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
		if err := b.Session.Query("INSERT INTO outbox.relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, 't', 'i', ?, ?)",
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

// The preview of a replay contains why the dead letters would not be published now.
func TestPreview_ProblemsOfAReplay(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	ofSubscription := testDeadLetter("b", 1)
	ofSubscription.Table = "subscription.mail"
	b.writeDeadLetter(t, ofSubscription, time.Time{})
	problems := func(action, table string) string {
		t.Helper()
		var p PreviewBody
		b.ask(t, access.Viewer, "POST", "/v1/dead-letters/preview", `{"action":"`+action+`","filter":{"table":"`+table+`"}}`).into(t, 200, &p)
		if p.DeadLetters != 1 {
			t.Fatalf("the preview is %+v, want one dead letter", p)
		}
		return strings.Join(p.Problems, "; ")
	}
	for _, tt := range []struct {
		relay, status string
		at            time.Duration // after now
		want          string
	}{
		{"r", `{"state":"stopped"}`, time.Hour, "no relay of " + testTable + " runs"},
		{"r", `{"state":"running","breaker":{"state":"closed"}}`, -time.Minute, "no relay of " + testTable + " runs"},
		{"r", `{"state":"running","breaker":{"state":"open"}}`, time.Hour, "the breaker of a shard of the relay of " + testTable + " is open"},
		{"r", `{"state":"running","breaker":{"state":"closed"}}`, time.Hour, ""},
		{"r/0", `{"state":"running","breaker":{"state":"closed"},"shard":{"index":0,"count":3}}`, time.Hour, "no instance owns shards [1 2] of " + testTable},
	} {
		if err := b.Session.Query("INSERT INTO outbox.relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, ?, 'i', ?, ?)",
			tt.relay, testTable, time.Now().Add(tt.at), tt.status).Exec(); err != nil {
			t.Fatal(err)
		}
		if got := problems("replay", testTable); got != tt.want {
			t.Errorf("with %s the problems are %q, want %q", tt.status, got, tt.want)
		}
	}
	if got := problems("discard", testTable) + problems("replay", "subscription.mail"); got != "" {
		t.Errorf("a change that no relay publishes has the problems %q", got)
	}
}
