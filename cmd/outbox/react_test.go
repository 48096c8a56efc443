package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/react"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

func TestReactRules_FromTheFile(t *testing.T) {
	t.Parallel()
	c, err := configOf(t, `
react:
  targets: ["ops=generic://127.0.0.1:1/x?disabletls=yes"]
  keep_failed: 240h
  rules:
    - {name: big, topics: [OrderCreated], when: 'double(data.total) >= 1000.0', to: ops, title: 'Big: {{.data.total}}', timeout: 3s}
    - name: all
      topics: ["Order*"]
      types: [OrderCancelled]
      to: log
      attempts: 3
      backoff: 2s
      max_backoff: 1m
      concurrency: 2
      queue: 10
      order: none
      from: start
      severity: warning
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.React.Rules) != 2 || c.React.Rules[0].Timeout != 3*time.Second || c.React.KeepFailed != 240*time.Hour || c.React.Group != react.DefaultGroup {
		t.Errorf("%+v", c.React)
	}
	want := react.Rule{
		Name: "all", Topics: []string{"Order*"}, Types: []string{"OrderCancelled"}, To: "log", Attempts: 3, Backoff: 2 * time.Second, MaxBackoff: time.Minute,
		Concurrency: 2, Queue: 10, Order: react.OrderNone, From: react.FromStart, Severity: "warning",
	}
	if got := c.React.Rules[1]; got.Name != want.Name || got.MaxBackoff != want.MaxBackoff || got.Order != want.Order || got.From != want.From || got.Types[0] != want.Types[0] {
		t.Errorf("the second rule is %+v, want %+v", got, want)
	}
	for rule, want := range map[string]string{
		`{name: a, topic: X}`:              "react.rules",
		`{name: a, topics: [X], when: [1}`: "yaml",
	} {
		_, err := configOf(t, "react:\n  rules:\n    - "+rule+"\n", nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
}

// What is wrong with a rule ends the command before it waits for anything.
func TestReact_BadRulesAreUsage(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		"": "no rules are configured",
		"- {name: a, topics: [x], to: log, when: 'event_type = \"y\"'}": "rule a: when: line 1, column 12",
		"- {name: a, topics: [x], to: ops}":                             `rule a: to "ops": no such target or plugin; use one of log`,
		"- {name: a, topics: [x], to: log, title: '{{.event}}'}":        "rule a: title: an event has no event",
	} {
		file := filepath.Join(t.TempDir(), "outbox.yaml")
		if err := os.WriteFile(file, []byte("react:\n  rules:\n    "+yaml+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		if code := run([]string{"react", "--config", file}, &out, &errOut); code != cli.ExitUsage || !strings.Contains(errOut.String(), want) {
			t.Errorf("%q: exit status %d, %s, want %q", yaml, code, errOut.String(), want)
		}
	}
}

// TestReact_FromRecordToWebhookAndBack goes the whole way: a record, a rule, a signed
// webhook whose receiver refuses, the command line that finds and repeats the
// delivery.
func TestReact_FromRecordToWebhookAndBack(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	keys, err := notify.ParseKeys(secret)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	status, got := http.StatusTeapot, []string{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = notify.Verify(r.Header, body, keys)
		}
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Header.Get(notify.HeaderID)+" "+string(body))
		w.WriteHeader(status)
	}))
	t.Cleanup(receiver.Close)
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	config := `
react:
  targets: ["hook=webhook+` + receiver.URL + `/x"]
  webhook_secrets: [` + secret + `]
  rules:
    - {name: big, topics: [things], when: data.n > 10, to: hook, title: "{{.data.n}} things", from: start}
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]bool)
	for _, payload := range []string{`{"n":3}`, `{"n":30}`} {
		e := outbox.Event{ID: outbox.NewID(), AggregateText: "t-1", Sequence: 1, AggregateType: "thing", Type: "ThingHappened", Payload: []byte(payload), CreatedAt: time.Now()}
		ids[e.ID.String()] = true
		r := &kgo.Record{Topic: "things", Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
		if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	root := newRoot(io.Discard, io.Discard)
	root.SetArgs([]string{"react", "--config", file, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--admin-addr", "127.0.0.1:0"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()

	ask := func(code int, args ...string) string {
		t.Helper()
		var out, errOut bytes.Buffer
		if c := run(append(append([]string{"deliveries"}, args...), "--scylla-hosts", b.e.CQLAddr), &out, &errOut); c != code {
			t.Errorf("deliveries %v: exit status %d, want %d\n%s%s", args, c, code, out.String(), errOut.String())
		}
		return out.String() + errOut.String()
	}
	list := func(state string) (views []delivery.View) {
		t.Helper()
		if err := json.Unmarshal([]byte(ask(cli.ExitOK, "list", "--rule", "big", "--state", state, "-o", "json")), &views); err != nil {
			t.Fatal(err)
		}
		return views
	}
	await := func(state string) delivery.View {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if views := list(state); len(views) == 1 {
				return views[0]
			}
		}
		t.Fatalf("no delivery became %s", state)
		return delivery.View{}
	}
	failed := await("failed")
	if failed.Attempts != 1 || !strings.Contains(failed.Error, "418") || !ids[failed.EventID] || failed.Event != nil {
		t.Errorf("the failed delivery is %+v", failed)
	}
	if out := ask(cli.ExitOK, "show", failed.ID); !strings.Contains(out, `{"n":30}`) || !strings.Contains(out, "things[") || !strings.Contains(out, "attempt 1") ||
		strings.Count(out, "418") < 2 {
		t.Errorf("show:\n%s", out)
	}
	if out := ask(cli.ExitOK, "list"); !strings.Contains(out, "DELIVERY") || !strings.Contains(out, failed.ID) {
		t.Errorf("list:\n%s", out)
	}
	if out := ask(cli.ExitOK, "repeat", "--rule", "big", "--dry-run", "-o", "json"); !strings.Contains(out, `"dry_run": true`) || !strings.Contains(out, `"big": 1`) {
		t.Errorf("dry run:\n%s", out)
	}
	if out := ask(cli.ExitUsage, "repeat", failed.ID, "--reason", "a test"); !strings.Contains(out, "nothing was changed") || !strings.Contains(out, "repeat 1 delivery") {
		t.Errorf("without --yes:\n%s", out)
	}
	for plugin, listed := range map[string]bool{"hook": true, "mail": false} {
		if out := ask(cli.ExitOK, "list", "--plugin", plugin); strings.Contains(out, failed.ID) != listed {
			t.Errorf("list --plugin %s:\n%s", plugin, out)
		}
	}
	ask(cli.ExitUsage, "list", "--since", "2026-01-02", "--until", "2026-01-01")
	ask(cli.ExitUsage, "repeat")
	ask(cli.ExitUsage, "list", "--state", "lost")
	ask(cli.ExitFailed, "repeat", "01a2005c-395d-72e3-8401-994110828553", "--yes", "--reason", "a test")
	mu.Lock()
	status = http.StatusNoContent
	mu.Unlock()
	if out := ask(cli.ExitOK, "repeat", failed.ID, "--yes", "--actor", "mara", "--reason", "fixed"); !strings.Contains(out, "repeat: 1 requested, 0 refused") {
		t.Errorf("repeat:\n%s", out)
	}
	done := await("delivered")
	if done.ID != failed.ID || done.Repeats != 1 || done.RepeatedBy != "mara" || done.Reason != "fixed" {
		t.Errorf("the delivery is %+v", done)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("react = %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 2 || !strings.HasPrefix(got[1], failed.ID+" ") || !strings.Contains(got[1], `"title":"30 things"`) || !strings.Contains(got[1], `"n":30`) {
		t.Errorf("the receiver got %q", got)
	}
}
