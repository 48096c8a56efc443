package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// The account of a subscription finds what its topic deleted before it was acknowledged.
func TestVerify_Subscription(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	a := outbox.NewID().UUID()
	for seq := range int64(3) {
		b.add(seq+1, a, 1)
	}
	s, err := store.Open(b.session, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, topics ...string) store.Resource {
		t.Helper()
		sub := subscriptions.Subscription{Name: name, Topics: topics, Start: subscriptions.StartEarliest}
		r, err := s.Put(t.Context(), sub.WithDefaults(), "ada")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := put("all", "*")
	stdout, stderr, code := b.verify("--subscription", "all")
	if code != 0 || !strings.Contains(stdout, "3 waiting") || !strings.HasSuffix(stdout, "verdict: ok\n") {
		t.Errorf("exit %d:\n%s%s", code, stdout, stderr)
	}

	adm := kadm.NewClient(b.client)
	var end, first kadm.Offsets
	ends, err := adm.ListEndOffsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			end.Add(kadm.Offset{Topic: o.Topic, Partition: o.Partition, At: o.Offset})
			first.Add(kadm.Offset{Topic: o.Topic, Partition: o.Partition, At: 1, LeaderEpoch: -1})
		}
	})
	if err := adm.CommitAllOffsets(t.Context(), r.Incarnation(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteRecords(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	stdout, _, code = b.verify("--subscription", "all")
	if code != cli.ExitFailed || !strings.Contains(stdout, "lost") || !strings.Contains(stdout, "@1 and 1 more") || !strings.Contains(stdout, "2 lost") ||
		!strings.HasSuffix(stdout, "verdict: problems found\n") {
		t.Errorf("after a loss: exit %d:\n%s", code, stdout)
	}
	// A position that no owner has committed is a problem of its own.
	stdout, _, code = b.verify("--subscription", "all", "-o", "json")
	var report struct {
		Lost     int64
		Problems []struct{ Kind string }
		OK       bool
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != cli.ExitFailed || report.Lost != 2 || len(report.Problems) != 2 || report.OK {
		t.Errorf("exit %d, %v: %s", code, err, stdout)
	}

	put("nothing", "no-such-topic")
	for want, args := range map[string][]string{
		"nothing checked":         {"--subscription", "nothing"},
		"no such subscription":    {"--subscription", "none"},
		"use letters":             {"--subscription", "a b"},
		"--wait-old cannot be":    {"--subscription", "all", "--wait-old"},
		"cannot be combined with": {"--subscription", "all", "--since", "1h"},
	} {
		if stdout, stderr, code := b.verify(args...); code == 0 || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%v: exit %d, %s%s; want %q", args, code, stdout, stderr, want)
		}
	}
}
