package admin

import (
	"fmt"
	"slices"
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
	for _, one := range got.Relays {
		if len(one.Shards) != 1 || len(one.Instances) != 0 {
			t.Fatalf("%s has %d shards and %d instances, want itself", one.Name, len(one.Shards), len(one.Instances))
		}
		r, w := one.Shards[0], want[one.Name]
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

// Instances and shards are distinguished without their names.
func TestRelays_InstancesAndShards(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, r := range [][4]string{
		{"orders", "a", "i1", `{"state":"running","sharing":{"shards":2,"owned":[0,1],"joined":true}}`},
		{"orders", "a", "i2", `{"state":"running","sharing":{"shards":2,"owned":[],"joined":true}}`},
		{"orders/00-of-02", "a", "i1", `{"state":"running","shard":{"index":0,"count":2}}`},
		{"orders/01-of-02", "a", "i1", `{"state":"running","shard":{"index":1,"count":2}}`},
		{"orders/00-of-01", "b", "i1", `{"state":"running","shard":{"index":0,"count":1}}`},
	} {
		if err := b.Session.Query("INSERT INTO outbox.relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, ?, ?, ?, ?)",
			r[0], r[1], r[2], time.Now(), r[3]).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	var got struct{ Relays []relayBody }
	b.ask(t, access.Viewer, "GET", "/v1/relays", "").into(t, 200, &got)
	var said []string
	for _, r := range got.Relays {
		line := r.Name + " of " + r.Table + ":"
		for _, i := range r.Instances {
			line += fmt.Sprintf(" %s owns %v", i.Instance, i.Sharing.Owned)
		}
		for _, s := range r.Shards {
			line += fmt.Sprintf(" %d of %d by %s", s.Shard.Index, s.Shard.Count, s.Instance)
		}
		said = append(said, line)
	}
	slices.Sort(said)
	want := []string{"orders of a: i1 owns [0 1] i2 owns [] 0 of 2 by i1 1 of 2 by i1", "orders of b: 0 of 1 by i1"}
	if !slices.Equal(said, want) {
		t.Errorf("the relays are %q, want %q", said, want)
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
