package doctor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// The doctor reports shards without an owner, and another number.
func TestDoctor_Instances(t *testing.T) {
	t.Parallel()
	part := func(name string, index int) heartbeat.Row {
		i := heartbeat.Row{Relay: relay.Shard{Index: index, Count: 2}.Name("outbox"), Instance: name}
		if err := json.Unmarshal([]byte(fmt.Sprintf(`{"shard":{"index":%d,"count":2}}`, index)), &i.RelayStatus); err != nil {
			t.Fatal(err)
		}
		return i
	}
	member := func(name string, owned ...int) heartbeat.Row {
		return heartbeat.Row{Relay: "outbox", Instance: name, RelayStatus: heartbeat.RelayStatus{Sharing: &heartbeat.RelaySharing{Shards: 2, Owned: owned, Joined: true}}}
	}
	ill, starting := part("a/1", 0), part("a/1", 0)
	ill.State, ill.Problems = "running", []string{"the breaker is open"}
	starting.State, starting.Problems = "starting", []string{"starting: reading the topics back"}
	for name, x := range map[string]struct {
		shards int
		all    []heartbeat.Row
		ok     bool
		want   string
	}{
		"shared":            {2, []heartbeat.Row{member("a/1", 0), member("b/1", 1), part("a/1", 0), part("b/1", 1)}, true, "a/1 owns [0]; b/1 owns [1]"},
		"a standby":         {2, []heartbeat.Row{member("a/1", 0, 1), member("b/1"), part("a/1", 0), part("a/1", 1)}, true, "a/1 owns [0 1]; b/1 owns []"},
		"no owner":          {2, []heartbeat.Row{member("a/1", 1), part("a/1", 1)}, false, "no instance owns shards [0]"},
		"standbys alone":    {2, []heartbeat.Row{member("a/1")}, false, "no instance owns shards [0 1]"},
		"another number":    {4, []heartbeat.Row{member("a/1", 0, 1), part("a/1", 0), part("a/1", 1)}, false, "another number of shards than relay.shards, 4"},
		"not ready":         {2, []heartbeat.Row{member("a/1", 0, 1), ill, part("a/1", 1)}, false, "a/1 owns [0 1]; not ready: a/1: the breaker is open"},
		"starting":          {2, []heartbeat.Row{member("a/1", 0, 1), starting, part("a/1", 1)}, true, "a/1 owns [0 1]"},
		"members not heard": {2, []heartbeat.Row{part("a/1", 0), part("a/1", 1)}, true, ""},
	} {
		c := &app.Config{Relay: app.RelayConfig{Shards: x.shards}}
		if got := checkCarried(c, "outbox.outbox_messages", x.all); got.OK != x.ok || !strings.Contains(got.Detail, x.want) || got.OK == (got.Fix != "") {
			t.Errorf("%s: checkCarried() = %+v, want %t, %q", name, got, x.ok, x.want)
		}
	}
}

// A relay that died is to be fixed; one that was stopped, or never was, is not.
func TestDoctor_ARelayThatDied(t *testing.T) {
	t.Parallel()
	c := &app.Config{Relay: app.RelayConfig{Settings: relay.Settings{Name: "outbox"}, Shards: 1}}
	at := time.Date(2026, 11, 22, 9, 10, 2, 0, time.UTC)
	gone := []heartbeat.Row{
		{Relay: "outbox", Instance: "a/1", At: at.Add(-time.Hour)}, {Relay: "outbox/01-of-02", Instance: "b/1", At: at}, {Relay: "another", Instance: "c/1", At: at.Add(time.Hour)},
	}
	if got := checkHeard(c, nil, gone); len(got) != 1 || got[0].OK || !strings.Contains(got[0].Detail, "the last heartbeat of b/1 was at 2026-11-22 09:10:02Z") || got[0].Fix == "" {
		t.Errorf("checkHeard() = %+v", got)
	}
	if got := checkHeard(c, nil, gone[2:]); len(got) != 1 || !got[0].OK {
		t.Errorf("checkHeard() of another relay's = %+v", got)
	}
	// Another table's relay that runs does not hide it, and one that took its place does.
	one := []heartbeat.Row{{Relay: "outbox/00-of-01", Instance: "d/1"}}
	if err := json.Unmarshal([]byte(`{"shard":{"index":0,"count":1}}`), &one[0].RelayStatus); err != nil {
		t.Fatal(err)
	}
	other := one[0]
	other.Table = "shop.events"
	if got := checkHeard(c, []heartbeat.Row{other}, gone); len(got) != 2 || got[0].OK || !got[1].OK {
		t.Errorf("checkHeard() beside another table's relay = %+v", got)
	}
	if got := checkHeard(c, one, gone); len(got) != 1 || !got[0].OK {
		t.Errorf("checkHeard() of one that was replaced = %+v", got)
	}
}

// An instance that failed before another one of its relay was stopped is no problem.
func TestDoctor_AStopEndsEarlierFailures(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 9, 10, 0, 0, time.UTC)
	at := func(relay, table, name, state string, age time.Duration) heartbeat.Row {
		return heartbeat.Row{Relay: relay, Table: table, Instance: name, At: now.Add(-age), RelayStatus: heartbeat.RelayStatus{State: state}}
	}
	alive, gone := divideInstances([]heartbeat.Row{
		at("outbox/00-of-01", "a.events", "killed", "running", 2*time.Hour),
		at("outbox/00-of-01", "a.events", "stopped", "stopped", time.Hour),
		at("outbox", "a.events", "stopped", "stopped", time.Hour),
		at("outbox/00-of-01", "b.events", "killed", "running", 2*time.Hour),
		at("outbox/00-of-01", "a.events", "killed later", "running", time.Minute),
		at("outbox", "a.events", "running", "running", time.Second),
	}, now)
	if len(alive) != 1 || alive[0].Instance != "running" || len(gone) != 2 || gone[0].Table != "b.events" || gone[1].Instance != "killed later" {
		t.Errorf("alive %+v, gone %+v", alive, gone)
	}
}
