package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

func TestScheduled_ReleasesAndTakesBack(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	service, err := messages.NewService(b.session, messages.Config{})
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
		args = append(append([]string{"scheduled"}, args...), "--scylla-hosts", b.e.cqlAddr)
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
		{[]string{"release"}, "which messages?"},
		{[]string{"release", "--all", "--topic", "a"}, "--all and filters"},
		{[]string{"cancel", "--topic", "a", "--rate", "-1"}, "--rate -1"},
		{[]string{"cancel", "--topic", "a", "--rate", "0.05"}, "--rate 0.05: must be 0.1 or more"},
		{[]string{"cancel", "--from", "3h", "--until", "1h"}, "--from 3h is not before"},
		{[]string{"cancel", "--from", "soon"}, "--from"},
		{append([]string{"release"}, mine...), "--yes does it without asking"},
	} {
		if _, errOut := scheduled(exitUsage, tt.args...); !strings.Contains(errOut, tt.want) {
			t.Errorf("%v said %q, want %q", tt.args, errOut, tt.want)
		}
	}
	out, _ := scheduled(exitOK, append([]string{"release", "--dry-run", "-o", "json"}, mine...)...)
	var report scheduledReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || !report.DryRun || report.Messages != 2 || report.ByTopic["a"] != 2 || report.Changed.Changed != 0 {
		t.Errorf("dry run printed %s, %v", out, err)
	}
	if due, waiting := waits(); due != 0 || waiting != 4 {
		t.Errorf("after a dry run %d are due and %d wait", due, waiting)
	}
	out, errOut := scheduled(exitOK, append([]string{"release", "--yes", "--rate", "1000", "--reason", "INC-1", "--actor", "ann"}, mine...)...)
	if out != "release: 2 released, 0 had gone before\n" || !strings.Contains(errOut, "release 2 messages") || !strings.Contains(errOut, "shop") {
		t.Errorf("release printed %q, %q", out, errOut)
	}
	if due, waiting := waits(); due != 2 || waiting != 2 {
		t.Errorf("after the release %d are due and %d wait", due, waiting)
	}
	if out, _ := scheduled(exitOK, append([]string{"release", "--yes"}, mine...)...); out != "release: 0 released, 0 had gone before\n" {
		t.Errorf("release again printed %q", out)
	}
	if out, _ := scheduled(exitOK, "cancel", "--yes", "--start-date", "1h", "--until", "24h"); out != "cancel: 4 taken back, 0 had gone before\n" {
		t.Errorf("cancel printed %q", out)
	}
	if due, waiting := waits(); due+waiting != 0 {
		t.Errorf("after all were taken back %d are due and %d wait", due, waiting)
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
