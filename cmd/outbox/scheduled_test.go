package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

func TestScheduled_ReleasesAndCancels(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	service, err := messages.NewService(b.session, messages.Config{Topics: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct{ topic, client string }{{"a", "shop"}, {"a", "shop"}, {"a", "till"}, {"b", "shop"}} {
		if _, err := service.Accept(t.Context(), messages.NewMessage{Topic: m.topic, Delay: "1h"}, messages.Options{Client: m.client}); err != nil {
			t.Fatal(err)
		}
	}
	waits := func() (due, waiting int) {
		page, _, _, err := service.List(t.Context(), schedule.Position{DeliverAt: time.Now().Add(-time.Hour)}, schedule.Filter{Until: time.Now().Add(2 * time.Hour)}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page {
			if v.DeliverAt.After(time.Now()) {
				waiting++
			} else {
				due++
			}
		}
		return due, waiting
	}
	scheduled := func(want int, args ...string) (out, errOut string) {
		t.Helper()
		var o, e bytes.Buffer
		args = append(append([]string{"scheduled"}, args...), "--scylla-hosts", b.e.CQLAddr)
		if code := run(args, &o, &e); code != want {
			t.Fatalf("%v: exit status %d, want %d\n%s%s", args, code, want, o.String(), e.String())
		}
		return o.String(), e.String()
	}
	mine := []string{"--topic", "a", "--client", "shop"}

	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"release"}, "no messages selected"},
		{[]string{"release", "--all", "--topic", "a"}, "--all and filters"},
		{[]string{"cancel", "--topic", "a", "--rate", "-1"}, "--rate -1"},
		{[]string{"cancel", "--topic", "a", "--rate", "0.05"}, "--rate 0.05: must be 0.1 or more"},
		{[]string{"cancel", "--since", "3h", "--until", "1h"}, "--since 3h is not before"},
		{[]string{"cancel", "--since", "soon"}, "--since"},
		{append([]string{"release"}, mine...), "--reason is required"},
		{append([]string{"release", "--reason", "a test"}, mine...), "--yes skips the confirmation"},
	} {
		if _, errOut := scheduled(cli.ExitUsage, tt.args...); !strings.Contains(errOut, tt.want) {
			t.Errorf("%v said %q, want %q", tt.args, errOut, tt.want)
		}
	}
	out, _ := scheduled(cli.ExitOK, append([]string{"release", "--dry-run", "-o", "json"}, mine...)...)
	var report scheduledReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || !report.DryRun || report.Messages != 2 || report.ByTopic["a"] != 2 || report.Changed.Changed != 0 {
		t.Errorf("dry run printed %s, %v", out, err)
	}
	if due, waiting := waits(); due != 0 || waiting != 4 {
		t.Errorf("after a dry run %d are due and %d wait", due, waiting)
	}
	out, errOut := scheduled(cli.ExitOK, append([]string{"release", "--yes", "--rate", "1000", "--reason", "INC-1", "--actor", "ann"}, mine...)...)
	if out != "release: 2 released, 0 were published before\n" || !strings.Contains(errOut, "release 2 messages") || !strings.Contains(errOut, "shop") {
		t.Errorf("release printed %q, %q", out, errOut)
	}
	if due, waiting := waits(); due != 2 || waiting != 2 {
		t.Errorf("after the release %d are due and %d wait", due, waiting)
	}
	// Nothing matches any more, which is said once, and there is nothing to ask.
	for _, args := range [][]string{{"release", "--reason", "a test"}, {"release", "--yes", "--reason", "a test"}, {"release", "--dry-run"}} {
		if out, errOut := scheduled(cli.ExitOK, append(args, mine...)...); out != "" || errOut != "no message that waits matches\n" {
			t.Errorf("%v again printed %q, %q", args, out, errOut)
		}
	}
	if out, errOut := scheduled(cli.ExitOK, append([]string{"release", "--yes", "--reason", "a test", "-o", "json"}, mine...)...); errOut != "" || json.Unmarshal([]byte(out), &report) != nil || report.Messages != 0 {
		t.Errorf("release again as JSON printed %q, %q", out, errOut)
	}
	if out, _ := scheduled(cli.ExitOK, "cancel", "--yes", "--reason", "a test", "--created-since", "1h", "--until", "24h"); out != "cancel: 4 cancelled, 0 were published before\n" {
		t.Errorf("cancel printed %q", out)
	}
	if due, waiting := waits(); due+waiting != 0 {
		t.Errorf("after all were cancelled %d are due and %d wait", due, waiting)
	}
	var actor, detail, reason, outcome string
	if err := b.session.Query("SELECT actor, detail, reason, outcome FROM admin_audit WHERE action = 'release-messages' ALLOW FILTERING").
		Scan(&actor, &detail, &reason, &outcome); err != nil {
		t.Fatal(err)
	}
	if actor != "ann" || reason != "INC-1" || !strings.Contains(detail, `"client":"shop"`) || !strings.Contains(detail, `"messages":2`) || outcome != `{"changed":2,"gone":0}` {
		t.Errorf("the audit has %s %s %s %s", actor, detail, reason, outcome)
	}
}

// Beyond the topics and clients that are counted one by one there are others, not none.
func TestScheduled_PreviewNamesTheRest(t *testing.T) {
	t.Parallel()
	tally, rest := messages.NewTally(), messages.NewTally()
	for i := range 60 {
		rest.ByTopic = map[string]int{fmt.Sprintf("topic-%d", i): 2}
		rest.ByClient = map[string]int{"shop": 2}
		tally.Merge(&rest)
	}
	var out bytes.Buffer
	f := scheduledFlags{scheduledChange: scheduledChange{name: "release"}}
	if f.preview(&out, &tally); !strings.Contains(out.String(), "        20  (others)\n") || strings.Contains(out.String(), "(none)") {
		t.Errorf("the preview is\n%s", out.String())
	}
}

// The list has what the filters of a change mean, the next to be delivered first, and
// says where it is empty or has more.
func TestScheduled_List(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	service, err := messages.NewService(b.session, messages.Config{Topics: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	list := func(want int, args ...string) (out, errOut string) {
		t.Helper()
		var o, e bytes.Buffer
		args = append(append([]string{"scheduled", "list"}, args...), "--scylla-hosts", b.e.CQLAddr)
		if code := run(args, &o, &e); code != want {
			t.Fatalf("%v: exit status %d, want %d\n%s%s", args, code, want, o.String(), e.String())
		}
		return o.String(), e.String()
	}
	if out, errOut := list(cli.ExitOK); out != "" || errOut != "no message that waits matches\n" {
		t.Errorf("an empty list printed %q, %q", out, errOut)
	}
	if out, errOut := list(cli.ExitOK, "-o", "json"); out != "[]\n" || errOut != "" {
		t.Errorf("an empty list as JSON printed %q, %q", out, errOut)
	}

	ids := make(map[string]string) // by key
	for _, m := range []struct{ key, topic, client, delay string }{
		{"late", "a", "shop", "48h"}, {"soon", "a", "shop", "1h"}, {"till", "a", "till", "2h"}, {"other", "b", "shop", "3h"},
	} {
		accepted, err := service.Accept(t.Context(), messages.NewMessage{Topic: m.topic, Key: m.key, Delay: m.delay}, messages.Options{Client: m.client})
		if err != nil {
			t.Fatal(err)
		}
		ids[m.key] = accepted.ID.String()
	}
	for _, tt := range []struct {
		args []string
		keys []string
		more bool
	}{
		{nil, []string{"soon", "till", "other", "late"}, false},
		{[]string{"--limit", "0"}, []string{"soon", "till", "other", "late"}, false},
		{[]string{"--limit", "2"}, []string{"soon", "till"}, true},
		{[]string{"--limit", "4"}, []string{"soon", "till", "other", "late"}, false},
		{[]string{"--topic", "a"}, []string{"soon", "till", "late"}, false},
		{[]string{"--topic", "a", "--client", "shop", "--limit", "1"}, []string{"soon"}, true},
		{[]string{"--key", "other"}, []string{"other"}, false},
		{[]string{"--since", "90m", "--until", "24h"}, []string{"till", "other"}, false},
		{[]string{"--created-since", "1h"}, []string{"soon", "till", "other", "late"}, false},
		{[]string{"--created-until", "1h"}, nil, false},
	} {
		out, _ := list(cli.ExitOK, append(tt.args, "-o", "json")...)
		var got []scheduledView
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v printed %s: %v", tt.args, out, err)
		}
		var keys []string
		for _, v := range got {
			keys = append(keys, v.Key)
			if v.ID != ids[v.Key] || v.State != messages.Scheduled || v.Client == "" || !v.DeliverAt.After(v.CreatedAt) {
				t.Errorf("%v: %+v", tt.args, v)
			}
		}
		if !slices.Equal(keys, tt.keys) {
			t.Errorf("%v: %v, want %v", tt.args, keys, tt.keys)
		}
		_, errOut := list(cli.ExitOK, tt.args...)
		if got := strings.Contains(errOut, fmt.Sprintf("only the next %d; --limit 0 shows all", len(tt.keys))); got != tt.more {
			t.Errorf("%v said %q", tt.args, errOut)
		}
	}
	out, _ := list(cli.ExitOK, "--client", "till")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], "MESSAGE") || !strings.Contains(lines[1], ids["till"]+"  a      till  till    2") {
		t.Errorf("the table is\n%s", out)
	}
	for args, want := range map[string]string{"--limit=-1": "--limit -1 must not be negative", "--since=soon": "--since \"soon\"", "--output=xml": "xml"} {
		if _, errOut := list(cli.ExitUsage, args); !strings.Contains(errOut, want) {
			t.Errorf("%s said %q, want %q", args, errOut, want)
		}
	}
}
