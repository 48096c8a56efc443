package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/doctor"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

// The doctor holds relay.shards against the database and the control topic before an
// instance refuses to work: it names the setting, both numbers and the command.
func TestDoctor_AnotherNumberOfShards(t *testing.T) {
	t.Parallel()
	const agreed, control = "number of shards", "partitions of topic outbox.relay.outbox.shards"
	b := setupVerify(t)
	a := relay.Agreement{Session: b.session, Keyspace: "outbox", Name: relay.Defaults().Name}
	findings := func(shards int) map[string]doctor.Finding {
		t.Helper()
		c, err := parseConfig(t, "", nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--relay-shards", fmt.Sprint(shards), "--relay-topic-replication", "1")
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[string]doctor.Finding)
		for _, f := range doctor.Check(t.Context(), c) {
			out[f.Check] = f
		}
		return out
	}
	type want struct {
		ok     bool
		detail string
		fix    []string
	}
	check := func(when string, shards int, check string, w want) {
		t.Helper()
		f, found := findings(shards)[check]
		if !found || f.OK != w.ok || !strings.Contains(f.Detail, w.detail) || f.OK != (f.Fix == "") {
			t.Errorf("%s: %s: %+v, want %+v", when, check, f, w)
		}
		for _, m := range w.fix {
			if !strings.Contains(f.Fix, m) {
				t.Errorf("%s: %s: %q, want %q", when, check, f.Fix, m)
			}
		}
	}

	check("before the first instance", 3, agreed, want{true, "relay.shards is 3; the first instance of relay outbox stores it", nil})
	if _, found := findings(3)[control]; found {
		t.Error("before the first instance the partitions of no topic are found fault with")
	}

	if now, err := a.AgreeOn(t.Context(), 2); err != nil || now != 2 {
		t.Fatalf("AgreeOn(2) = %d, %v", now, err)
	}
	if _, err := kadm.NewClient(b.client).CreateTopic(t.Context(), 2, 1, nil, share.ControlTopic(app.GroupName(relay.Defaults().Name))); err != nil {
		t.Fatal(err)
	}
	check("as agreed", 2, agreed, want{true, "relay.shards and relay_sharing have the value 2", nil})
	if f, found := findings(2)[control]; found {
		t.Errorf("as agreed: %+v", f)
	}
	another := want{false, "relay.shards is 3, and relay outbox is divided into 2 shards", []string{"set relay.shards to 2", "outbox relay reshard --shards 3"}}
	check("another number", 3, agreed, another)
	another.detail = "relay.shards is 3, and it has 2 partitions"
	check("another number", 3, control, another)

	// A change to 3 that was begun and not finished.
	if now, err := a.Change(t.Context(), 2, 3, "test"); err != nil || now != 3 {
		t.Fatalf("Change() = %d, %v", now, err)
	}
	check("half of a change", 3, agreed, want{true, "have the value 3", nil})
	check("half of a change", 3, control, another)
}
