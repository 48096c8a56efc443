package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/api"
	"github.com/scylla-outbox/scylla-outbox/test/subfake"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// queue is a subscriptions API on a service in memory.
type queue struct {
	*subfake.Service
	url string
}

func startQueue(t *testing.T) *queue {
	t.Helper()
	service := subfake.New("i1")
	server, err := api.New(api.Config{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(server.Handler())
	t.Cleanup(func() { server.Drain(); srv.Close() })
	return &queue{service, srv.URL}
}

// outbox runs a command line on the API.
func (q *queue) outbox(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	return q.within(t.Context(), args...)
}

func (q *queue) within(ctx context.Context, args ...string) (status int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	root := newRoot(&stdout, &stderr)
	root.SetContext(ctx)
	status = cli.Execute(root, append(args, "--api-subscriptions-url", q.url), &stderr)
	return status, stdout.String(), stderr.String()
}

func TestSubscriptions_Administration(t *testing.T) {
	t.Parallel()
	q := startQueue(t)
	file := filepath.Join(t.TempDir(), "subscriptions.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	step := func(want int, text string, args ...string) string {
		t.Helper()
		if slices.Contains([]string{"pause", "resume", "seek", "purge", "delete", "end-lease", "reject"}, args[0]) {
			args = append(args, "--reason", "a test")
		}
		status, out, errOut := q.outbox(t, append([]string{"subscriptions"}, args...)...)
		if status != want || !strings.Contains(out+errOut, text) {
			t.Errorf("outbox subscriptions %v = %d\n%s%s\nwant %d with %q", args, status, out, errOut, want, text)
		}
		return out
	}
	step(cli.ExitOK, "no subscriptions", "list")
	write("name: mail\ntopics: [OrderCreated]\nvisibility_timeout: 1m\nmax_extension: 20m\nbackoff_multiplier: 3\ntransform: '{\"payload\": data.order}'\n---\n{\"name\":\"stock\",\"topics\":[\"Order*\"]}\n")
	step(cli.ExitOK, "subscription stock stored, version 1", "apply", "-f", file)
	for bad, text := range map[string]string{"topics: [a]": "name is missing", "name: x\ntopic: a": "topic", "": "no subscription", "[": "yaml"} {
		write(bad)
		step(cli.ExitUsage, text, "apply", "-f", file)
	}
	write("name: mail\ntopics: []")
	step(cli.ExitFailed, "body.topics", "apply", "-f", file)
	write("name: mail\ntopics: [a]\ntransform: data.n > 1")
	step(cli.ExitFailed, "body.transform line 1, column 8: the type is bool, want a map", "apply", "-f", file)
	step(cli.ExitOK, "Order*", "list")
	got := step(cli.ExitOK, "visibility_timeout: 1m", "get", "mail")
	write(got)
	if !strings.Contains(got, `transform: '{"payload": data.order}'`) || !strings.Contains(got, "max_extension: 20m") || !strings.Contains(got, "backoff_multiplier: 3") {
		t.Errorf("get: %s", got)
	}
	step(cli.ExitOK, "version 2", "apply", "-f", file)
	step(cli.ExitFailed, "has changed", "apply", "-f", file)
	step(cli.ExitOK, "paused", "pause", "mail")
	step(cli.ExitOK, "paused", "list")
	step(cli.ExitOK, `"result": "resumed"`, "resume", "mail", "-o", "json")
	step(cli.ExitUsage, "--yes skips the confirmation", "seek", "mail", "--to", "earliest")
	step(cli.ExitOK, "earliest", "seek", "mail", "--to", "earliest", "--yes")
	step(cli.ExitOK, "offset", "seek", "--yes", "mail", "--to", "offset", "--topic", "OrderCreated", "--partition", "0", "--offset", "0")
	if s := q.Seeks(); len(s) != 2 || s[0].Partition != -1 || s[1] != (subscriptions.Seek{To: "offset", Topic: "OrderCreated"}) {
		t.Errorf("seeks %+v", s)
	}
	step(cli.ExitFailed, "body.to", "seek", "mail", "--to", "then", "-y")
	q.Publish("mail", "k", `{}`)
	step(cli.ExitOK, "continues at latest: 1 offsets skipped, 0 repeated", "seek", "mail", "--to", "latest", "--dry-run")
	step(cli.ExitOK, `"skipped": 3`, "seek", "mail", "--to", "offset", "--offset", "3", "--dry-run", "-o", "json")
	step(cli.ExitOK, "of 1 and continues at earliest\n", "seek", "mail", "--to", "earliest", "--dry-run")
	step(cli.ExitOK, "has no such partition", "seek", "mail", "--to", "latest", "--topic", "other", "--dry-run")
	if s := q.Seeks(); len(s) != 2 {
		t.Errorf("a preview or a refused seek moved the position: %+v", s)
	}
	step(cli.ExitOK, "1 message would be removed", "purge", "mail", "--dry-run")
	step(cli.ExitUsage, "--yes skips the confirmation", "purge", "mail")
	step(cli.ExitUsage, "--until", "purge", "mail", "--until", "yesterday", "--dry-run")
	step(cli.ExitOK, "lag           1", "status", "mail")
	step(cli.ExitOK, "1 message removed", "purge", "mail", "-y")
	step(cli.ExitOK, `"lag": 0`, "status", "mail", "-o", "json")
	step(cli.ExitUsage, "--yes skips the confirmation", "delete", "mail")
	step(cli.ExitOK, "would be deleted", "delete", "mail", "--dry-run")
	step(cli.ExitOK, "OrderCreated", "get", "mail")
	step(cli.ExitOK, "deleted", "delete", "mail", "--yes")
	step(cli.ExitFailed, "There is no subscription", "status", "mail")
	write("name: jobs\ntopics: [t]\n")
	step(cli.ExitOK, "stored", "apply", "-f", file)
	step(cli.ExitOK, "no message is in flight", "leases", "jobs")
	q.Publish("jobs", "k", `{}`)
	if got, err := q.Receive(t.Context(), "jobs", subscriptions.Receive{Max: 1, Consumer: "worker-7"}); err != nil || len(got) != 1 {
		t.Fatalf("Receive() = %+v, %v", got, err)
	}
	step(cli.ExitOK, "worker-7", "leases", "jobs")
	step(cli.ExitOK, `"id": "t-i1:0:0:1"`, "leases", "jobs", "-o", "json")
	step(cli.ExitUsage, "--limit", "leases", "jobs", "--limit", "-1")
	step(cli.ExitFailed, "id of a lease", "end-lease", "jobs", "17", "-y")
	step(cli.ExitUsage, "--yes skips the confirmation", "end-lease", "jobs", "t-i1:0:0:1")
	step(cli.ExitOK, "would be ended: event ", "end-lease", "jobs", "t-i1:0:0:1", "--dry-run")
	step(cli.ExitOK, `"result": "would be rejected"`, "reject", "jobs", "t-i1:0:0:1", "--dry-run", "-o", "json")
	step(cli.ExitFailed, "it has ended", "reject", "jobs", "17", "--dry-run")
	step(cli.ExitOK, "ended", "end-lease", "jobs", "t-i1:0:0:1", "-y")
	step(cli.ExitFailed, "has ended", "end-lease", "jobs", "t-i1:0:0:1", "-y")
	if _, err := q.Receive(t.Context(), "jobs", subscriptions.Receive{Max: 1}); err != nil {
		t.Fatal(err)
	}
	step(cli.ExitOK, "is a dead letter", "reject", "jobs", "t-i1:0:0:1", "-y")
	step(cli.ExitFailed, "has ended", "reject", "jobs", "t-i1:0:0:1", "-y")
	q.url = "http://127.0.0.1:1"
	step(cli.ExitUsage, "json or yaml", "list", "-o", "x")
	q.url = "there"
	step(cli.ExitUsage, "api.subscriptions_url (--api-subscriptions-url) is no URL", "list")
}

func TestConsume_PrintsAndAcknowledges(t *testing.T) {
	t.Parallel()
	q := startQueue(t)
	if _, err := q.Put(t.Context(), subscriptions.Subscription{Name: "s", Topics: []string{"t"}}, ""); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		q.Publish("s", fmt.Sprint("k", i), fmt.Sprintf(`{"n":%d}`, i))
	}
	status, out, errOut := q.outbox(t, "consume", "s", "--limit", "3", "--concurrency", "4")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if status != cli.ExitOK || len(lines) != 3 || q.Open("s") != 2 || q.Leased("s") != 0 {
		t.Fatalf("consume --max 3 = %d with %d open and %d leased\n%s%s", status, q.Open("s"), q.Leased("s"), out, errOut)
	}
	for _, line := range lines {
		var d struct {
			Receipt string
			Data    struct{ N *int }
		}
		if err := json.Unmarshal([]byte(line), &d); err != nil || d.Receipt == "" || d.Data.N == nil {
			t.Errorf("line %s: %v", line, err)
		}
	}
	status, _, errOut = q.outbox(t, "consume", "none")
	if status != cli.ExitFailed || !strings.Contains(errOut, "There is no subscription none") {
		t.Errorf("consume of an unknown subscription = %d %s", status, errOut)
	}
}

// The exit status of the command decides, and its error output is the reason.
func TestConsume_RunsACommand(t *testing.T) {
	t.Parallel()
	q := startQueue(t)
	if _, err := q.Put(t.Context(), subscriptions.Subscription{Name: "s", Topics: []string{"t"}, MaxReceive: 1}, ""); err != nil {
		t.Fatal(err)
	}
	q.Publish("s", "a", `{"n":"good"}`)
	q.Publish("s", "b", `{"n":"bad"}`)
	status, out, errOut := q.outbox(t, "consume", "s", "--limit", "2", "--exec", `if grep -q good; then echo done; else echo "cannot do it" >&2; exit 3; fi`)
	if status != cli.ExitOK || out != "done\n" || !strings.Contains(errOut, "cannot do it") || q.Open("s") != 0 {
		t.Errorf("consume --exec = %d with %d open\n%s%s", status, q.Open("s"), out, errOut)
	}
	if dead := q.Dead("s"); len(dead) != 1 || dead[0].Key != "b" {
		t.Errorf("dead letters %+v, want the message whose command failed", dead)
	}
}

// A command that cannot be started uses up no delivery; when it can, the messages are processed.
func TestConsume_ACommandThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	q := startQueue(t)
	if _, err := q.Put(t.Context(), subscriptions.Subscription{Name: "s", Topics: []string{"t"}, MaxReceive: 1}, ""); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		q.Publish("s", fmt.Sprint("k", i), `{}`)
	}
	command := filepath.Join(t.TempDir(), "send.sh")
	type result struct {
		status int
		errOut string
	}
	done := make(chan result)
	go func() {
		status, _, errOut := q.within(t.Context(), "consume", "s", "--limit", "3", "--concurrency", "3", "--exec", command)
		done <- result{status, errOut}
	}()
	world.Eventually(t, "a delivery has failed", func() bool { return q.Released("s") > 0 })
	if err := os.WriteFile(command, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil { //nolint:gosec // it has to be executable
		t.Fatal(err)
	}
	got := <-done
	if got.status != cli.ExitOK || !strings.Contains(got.errOut, "start the command") || q.Open("s") != 0 || len(q.Dead("s")) != 0 {
		t.Errorf("consume --exec = %d with %d open and %d dead letters\n%s", got.status, q.Open("s"), len(q.Dead("s")), got.errOut)
	}
}

// A command that hangs is stopped after --timeout: a failed delivery.
func TestConsume_ACommandThatHangs(t *testing.T) {
	t.Parallel()
	q := startQueue(t)
	if _, err := q.Put(t.Context(), subscriptions.Subscription{Name: "s", Topics: []string{"t"}, MaxReceive: 1}, ""); err != nil {
		t.Fatal(err)
	}
	q.Publish("s", "a", `{}`)
	status, _, errOut := q.outbox(t, "consume", "s", "--limit", "1", "--timeout", "1s", "--exec", "exec sleep 1000")
	if status != cli.ExitOK || !strings.Contains(errOut, "stopped") || len(q.Dead("s")) != 1 {
		t.Errorf("consume --timeout = %d with %d dead letters\n%s", status, len(q.Dead("s")), errOut)
	}
}

// The list of leases follows the pages of the API, and reports instances that have not answered.
func TestSubscriptions_LeasesOfAllPages(t *testing.T) {
	t.Parallel()
	q := startQueue(t)
	if _, err := q.Put(t.Context(), subscriptions.Subscription{Name: "s", Topics: []string{"t"}}, ""); err != nil {
		t.Fatal(err)
	}
	const n = leasesPage + 1
	for i := range n {
		q.Publish("s", strconv.Itoa(i), `{}`)
	}
	for left := n; left > 0; {
		got, err := q.Receive(t.Context(), "s", subscriptions.Receive{Max: left, VisibilityTimeout: time.Hour})
		if err != nil || len(got) == 0 {
			t.Fatalf("Receive() = %d, %v", len(got), err)
		}
		left -= len(got)
	}
	for limit, want := range map[int]int{0: n, n: n, n - 1: n - 1, 3: 3} {
		var list struct {
			Items []client.Lease
			Next  string
		}
		status, out, errOut := q.outbox(t, "subscriptions", "leases", "s", "--limit", strconv.Itoa(limit), "-o", "json")
		if err := json.Unmarshal([]byte(out), &list); status != cli.ExitOK || err != nil {
			t.Fatalf("leases = %d, %v\n%s", status, err, errOut)
		}
		ids := make(map[string]bool)
		for _, l := range list.Items {
			ids[l.ID] = true
		}
		if len(list.Items) != want || len(ids) != want || (list.Next != "") != (want < n) {
			t.Errorf("--limit %d: %d leases, %d different, next %q", limit, len(list.Items), len(ids), list.Next)
		}
		if list.Next == "" {
			continue
		}
		status, out, errOut = q.outbox(t, "subscriptions", "leases", "s", "--limit", "0", "--cursor", list.Next, "-o", "json")
		rest, next := decodePage[client.Lease](t, out)
		if status != cli.ExitOK || len(rest) != n-want || next != "" || slices.ContainsFunc(rest, func(l client.Lease) bool { return ids[l.ID] }) {
			t.Errorf("behind %d leases: %d, next %q, status %d\n%s", want, len(rest), next, status, errOut)
		}
	}
	if _, _, errOut := q.outbox(t, "subscriptions", "leases", "s", "--limit", "2"); !strings.Contains(errOut, "only the oldest 2;") {
		t.Errorf("2 leases: %s", errOut)
	}
	partial := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"leases":[],"unknown":["i7"]}`)
	}))
	defer partial.Close()
	if _, _, errOut := (&queue{q.Service, partial.URL}).outbox(t, "subscriptions", "leases", "s"); !strings.Contains(errOut, "instance i7 has not answered") {
		t.Errorf("leases without an instance: %s", errOut)
	}
}

// A lease has the name of its consumer. A stopped one lets its command end and acknowledges the message.
func TestConsume_StopsGracefully(t *testing.T) {
	t.Parallel()
	q := startQueue(t)
	if _, err := q.Put(t.Context(), subscriptions.Subscription{Name: "s", Topics: []string{"t"}}, ""); err != nil {
		t.Fatal(err)
	}
	q.Publish("s", "a", `{}`)
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		status, _, _ := q.within(ctx, "consume", "s", "--consumer", "mailer-1", "--exec", "touch "+dir+"/began; until [ -e "+dir+"/go ]; do sleep 0.01; done; touch "+dir+"/ended")
		done <- status
	}()
	exists := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	world.Eventually(t, "the command runs", func() bool { return exists("began") })
	if _, out, errOut := q.outbox(t, "subscriptions", "leases", "s"); !strings.Contains(out, "/mailer-1") {
		t.Errorf("the lease does not name its consumer: %s%s", out, errOut)
	}
	stop()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status := <-done; status != cli.ExitOK || !exists("ended") || q.Open("s") != 0 {
		t.Errorf("stopped consume = %d, ended %v, %d open", status, exists("ended"), q.Open("s"))
	}
}

// The status shows when a position was committed last, and which consumers wait.
func TestSubscriptions_StatusShowsConsumers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var out strings.Builder
	if err := printSubscription(&out, &client.Status{
		Partitions: []client.PartitionStatus{{Topic: "t", Committed: 7, CommittedAt: at}, {Topic: "u", Committed: 8}},
		Consumers:  []client.WaitingConsumer{{Consumer: "ann/web-1", Instance: "i1", Requests: 2}},
	}); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"t[0] 7 2026-01-02 03:04:05Z", "u[0] 8 -", "WAITING CONSUMER REQUESTS INSTANCE ann/web-1 2 i1"} {
		if !strings.Contains(text, want) {
			t.Errorf("the status has no %q:\n%s", want, out.String())
		}
	}
}

// The status shows the breaker of each process.
func TestSubscriptions_StatusShowsBreakers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, b := range map[string]*client.BreakerStatus{
		" -  ":      nil,
		" closed  ": {State: "closed"},
		" open since 2026-01-02 03:04:05Z, next probe 2026-01-02 03:04:35Z: 503 ": {State: "open", Since: at, NextProbe: at.Add(30 * time.Second), Cause: "503"},
	} {
		var out strings.Builder
		if err := printSubscription(&out, &client.Status{Instances: []client.InstanceStatus{{Instance: "i", At: at, Breaker: b, LastError: "boom"}}}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), text) || !strings.Contains(out.String(), "boom") {
			t.Errorf("the status of %+v is\n%s", b, out.String())
		}
	}
}
