package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func TestDLQ_Edit(t *testing.T) {
	t.Parallel()
	onBothAPIs(t, testDLQEdit)
}

func testDLQEdit(t *testing.T, b *dlqFixture) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("OrderCreated.json", `{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}`)
	good, bad := write("good", `{"id":2}`), write("bad", `{"id":"2"}`)
	id := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.CreatedAt = testTime })
	schemas := []string{"--dlq-schemas", dir}
	if b.server != "" { // it has the schemas
		loaded, err := dlq.LoadSchemas(dir)
		if err != nil {
			t.Fatal(err)
		}
		schemas = nil
		b.serve(func(c *admin.Config) { c.Schemas = loaded })
	}
	edit := func(want int, args ...string) (string, string) {
		t.Helper()
		return b.run(want, append(append([]string{"edit", id}, args...), schemas...)...)
	}
	if _, errOut := edit(cli.ExitUsage, "--reason", "a test"); !strings.Contains(errOut, "no terminal for the editor") {
		t.Errorf("edit without a terminal says %q", errOut)
	}
	if _, errOut := edit(cli.ExitUsage, "--payload-file", good, "--reason", "a test"); !strings.Contains(errOut, "--yes") || !strings.Contains(errOut, `+  "id": 2`) {
		t.Errorf("edit without leave says %q", errOut)
	}
	if _, errOut := edit(cli.ExitFailed, "--payload-file", bad, "--yes", "--reason", "a test"); !strings.Contains(errOut, "/id") {
		t.Errorf("edit that does not fit says %q", errOut)
	}
	edit(cli.ExitFailed, "--header", "ce_id=x", "--yes", "--reason", "a test")
	edit(cli.ExitUsage, "--header", "x", "--yes", "--reason", "a test")
	edit(cli.ExitUsage, "--without-header", "x", "--yes", "--reason", "a test")
	if out, _ := edit(cli.ExitOK, "--header", "k=v", "--dry-run", "-o", "json"); !strings.Contains(out, `"dry_run": true`) {
		t.Errorf("edit --dry-run printed %q", out)
	}
	if _, errOut := edit(cli.ExitOK, "--header", "traceparent=00", "--yes", "--reason", "a test"); !strings.Contains(errOut, "nothing was changed") {
		t.Errorf("an edit that changes nothing says %q", errOut)
	}
	u, _ := gocql.ParseUUID(id)
	if l, err := b.store.Read(t.Context(), u); err != nil || l.Edit != nil || l.Version != 1 {
		t.Fatalf("edits that were not made left %+v, %v", l, err)
	}
	out, errOut := edit(cli.ExitOK, "--payload-file", good, "--header", "k=v", "--without-header", "traceparent", "--yes", "-o", "json", "--reason", "typo")
	var v admin.EditedBody
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.NewID == "" || len(v.Diff.Headers) != 2 {
		t.Fatalf("edit printed %q, %v", out, err)
	}
	if !strings.Contains(errOut, "fits the schema") {
		t.Errorf("edit says %q", errOut)
	}
	l, err := b.store.Read(t.Context(), u)
	if err != nil || l.EditedID.String() != v.NewID || string(l.Edit.Payload) != `{"id":2}` || string(l.Payload) != `{"id":1}` || l.Edit.Headers["k"] != "v" {
		t.Errorf("the dead letter is %+v, %v", l, err)
	}
	out, _ = b.run(cli.ExitOK, "get", id)
	for _, want := range []string{v.NewID, `{"id":1}`, `+  "id": 2`, "typo"} {
		if !strings.Contains(out, want) {
			t.Errorf("show lacks %q:\n%s", want, out)
		}
	}
	if shown, _ := b.run(cli.ExitOK, "get", v.NewID); shown != out {
		t.Errorf("show of the new id printed %q", shown)
	}
	if b.server == "" {
		schemas = []string{"--dlq-schemas", filepath.Join(dir, "none")}
		edit(cli.ExitUsage, "--payload-file", good, "--yes", "--reason", "a test")
	}
	b.run(cli.ExitFailed, "edit", gocql.MustRandomUUID().String(), "--payload-file", good, "--yes", "--reason", "a test")
}

func TestEditWith_AnEditor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, payload, editor, want string }{
		{"untouched, to the byte", `{"a" : 1}`, "true", `{"a" : 1}`},
		{"JSON is indented", `{"a":1,"b":2}`, `sed -i s/^..\"a\":.1,$/\"a\":7,/`, `{"a":7,"b":2}`},
		{"text", "abc", "sed -i s/b/x/", "axc"},
		{"no JSON any more", `{"a":1}`, "sed -i s/{/</", "<\n  \"a\": 1\n}\n"},
	} {
		got, err := editWith(t.Context(), tt.editor, []byte(tt.payload), strings.NewReader(""), io.Discard)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	if _, err := editWith(t.Context(), "false", nil, strings.NewReader(""), io.Discard); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("an editor that fails: %v", err)
	}
}
