package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// readmeOrders and readmeMessages are the documents' addresses of the APIs of orders and messages.
const readmeOrders, readmeMessages = "http://127.0.0.1:8080", "http://127.0.0.1:8084"

// curl matches the commands of the documents: indented ones, and those in a
// block, possibly with continuation lines.
var curl = regexp.MustCompile("(?m)^ *(curl -s.* " + "'?(?:" + regexp.QuoteMeta(readmeOrders) + "|" + regexp.QuoteMeta(readmeMessages) + `)/v1/(?:.*\\\n)*.*)$`)

// The API examples of the documents have the documented results, in their
// order, including the ones of the README. ID is that of the previous order or
// message.
func TestREADME_CurlExamples(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	var all []string
	for _, page := range []string{"quickstart", "messages", "event-stream"} {
		all = append(all, examples(t, "../../docs/"+page+".md")...)
	}
	for _, e := range examples(t, "../../README.md") {
		if !slices.Contains(all, e) {
			t.Errorf("no page has the README's example %s", e)
		}
	}
	if len(all) != 10 {
		t.Fatalf("the documents have %d examples, want 10: add the expected answer here", len(all))
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "orders.jsonl")
	write(t, file, order("1"))
	addrs := harness.FreeAddrs(t, 5)
	harness.Start(t, "dev", "run", "--data-dir", filepath.Join(dir, "data"), "--load", file,
		"--cql-addr", addrs[0], "--kafka-addr", addrs[1], "--orders-addr", addrs[2], "--admin-addr", addrs[3], "--messages-addr", addrs[4], "--subscriptions-addr", "127.0.0.1:0", "--ops-addr", "off")
	harness.Reachable(t, addrs[2])
	harness.Reachable(t, addrs[4])
	started := strings.NewReplacer(readmeOrders, "http://"+addrs[2], readmeMessages, "http://"+addrs[4])

	orders := func(ctx context.Context) {
		for ctx.Err() == nil {
			resp, err := http.Post("http://"+addrs[2]+"/v1/orders", "application/json", strings.NewReader(`{"country":"Finland","currency":"EUR","lines":[{"sku":"71053","quantity":1,"unit_price":"3.39"}]}`))
			if err == nil {
				_ = resp.Body.Close()
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	id := ""
	for i, want := range []struct{ part, answer string }{
		{"/v1/orders -H", `"status":"placed","customer_id":null,"country":"Finland"`},
		{"-X PATCH", `"version":2,`},
		{"/cancel", `"status":"cancelled"`},
		{"/v1/messages -H", `"state":"scheduled"`},
		{"/v1/messages/ID", `"state":"scheduled"`},
		{"/v1/messages/ID/content", `"payload_text":"{\"text\":\"hello\"}"`},
		{"8084/v1/messages", `"key":"customer-42"`},
		{"-X DELETE", "204"},
		{"/v1/messages/batch", `"accepted":2,"rejected":0`},
		{"/v1/events/stream", "event: event"},
	} {
		command := all[i]
		if !strings.Contains(command, want.part) {
			t.Fatalf("example %d is %s, want one with %s", i+1, command, want.part)
		}
		command = strings.ReplaceAll(started.Replace(command), "/ID", "/"+id)
		command = strings.ReplaceAll(command, `"delay":"10s"`, `"delay":"1h"`) // it waits until the example that cancels it
		if want.part == "/v1/events/stream" {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			go orders(ctx) // to produce events
		}
		got := run(t, command, want.answer)
		var made struct{ ID string }
		if json.Unmarshal([]byte(got), &made) == nil && made.ID != "" {
			id = made.ID
		}
		switch want.part {
		case "/v1/orders -H":
			if again := run(t, command, want.answer); again != got {
				t.Errorf("sent again: %s, want %s", again, got)
			}
		case "/cancel":
			run(t, command, "already-cancelled")
		}
	}
}

// examples returns the commands of a page, without the indentation of their
// lines.
func examples(t *testing.T, page string) (commands []string) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range curl.FindAllStringSubmatch(string(b), -1) {
		commands = append(commands, regexp.MustCompile(`\n +`).ReplaceAllString(m[1], "\n"))
	}
	if len(commands) == 0 {
		t.Errorf("%s has no example", page)
	}
	return commands
}

// run runs a command until it has ended, or has printed want.
func run(t *testing.T, command, want string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	out := &until{want: want, found: cancel}
	c := exec.CommandContext(ctx, "bash", "-c", "exec "+command)
	c.Stdout = out
	err := c.Run()
	got := out.said.String()
	if !strings.Contains(got, want) {
		t.Fatalf("%s\n%s (%v), want %s", command, got, err, want)
	}
	return got
}

// until collects the output of a stream and ends it after the wanted text.
type until struct {
	said  bytes.Buffer // not embedded: the command would read into it past Write
	want  string
	found func()
}

// Write ends a stream only: other responses arrive in one piece, and the
// command ends.
func (u *until) Write(b []byte) (int, error) {
	n, err := u.said.Write(b)
	if strings.HasPrefix(u.want, "event: ") && bytes.Contains(u.said.Bytes(), []byte(u.want)) {
		u.found()
	}
	return n, err
}
