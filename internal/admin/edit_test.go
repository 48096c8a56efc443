package admin

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

func mustID(t *testing.T, text string) gocql.UUID {
	t.Helper()
	id, err := gocql.ParseUUID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestEdit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "OrderCreated.json"), []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	schemas, err := dlq.LoadSchemas(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(c *Config) { c.Schemas = schemas })
	l := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	path := "/v1/dead-letters/" + l.EventID.String() + "/edit"
	var got struct {
		DryRun   bool           `json:"dry_run"`
		Diff     dlq.Difference `json:"diff"`
		Problems []string       `json:"problems"`
		Schema   bool           `json:"schema"`
		NewID    string         `json:"new_event_id"`
	}

	p := b.ask(t, access.Admin, "POST", path, `{"payload_text":"{\"n\":2}"}`).problemIn(t, http.StatusPreconditionRequired)
	if p.Type != httpapi.TypeNeedsMatch {
		t.Errorf("without a version: %+v", p)
	}
	b.ask(t, access.Admin, "POST", path, `{"payload_text":"{\"n\":2}"}`, "If-Match", `"9"`).problemIn(t, http.StatusPreconditionFailed)
	b.ask(t, access.Admin, "POST", path, `{"payload_text":"{\"n\":\"two\"}","dry_run":true}`, "If-Match", `"1"`).into(t, 200, &got)
	if !got.DryRun || !got.Schema || len(got.Problems) != 1 || !strings.Contains(got.Problems[0], "n") || got.NewID != "" || !strings.Contains(got.Diff.Payload, "two") {
		t.Errorf("a dry run of what does not fit: %+v", got)
	}
	p = b.ask(t, access.Admin, "POST", path, `{"payload_text":"{\"n\":\"two\"}"}`, "If-Match", `"1"`).problemIn(t, http.StatusUnprocessableEntity)
	if len(p.Errors) != 1 {
		t.Errorf("what does not fit: %+v", p)
	}
	p = b.ask(t, access.Admin, "POST", path, `{}`, "If-Match", `"1"`).problemIn(t, http.StatusUnprocessableEntity)
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "changes nothing") {
		t.Errorf("what changes nothing: %+v", p)
	}
	if l := b.mustRead(t, l); l.Version != 1 || len(b.auditEntries(t, "")) != 0 {
		t.Errorf("version %d and an audit, after nothing was changed", l.Version)
	}

	got.Problems = nil
	a := b.ask(t, access.Admin, "POST", path, `{"payload_text":"{\"n\":2}","headers":{"x":"y"}}`, httpapi.ReasonHeader, "was%20a%20text", "If-Match", `"1"`).into(t, 200, &got)
	if got.NewID == "" || len(got.Problems) != 0 || len(got.Diff.Headers) != 2 || a.header.Get("ETag") != `"2"` {
		t.Errorf("edited: %s", a.body)
	}
	var whole DeadLetterBody
	b.ask(t, access.Viewer, "GET", strings.TrimSuffix(path, "/edit"), "").into(t, 200, &whole)
	if whole.EditedTo != got.NewID || *whole.PayloadText != `{"n":1}` || whole.Edit == nil || *whole.Edit.PayloadText != `{"n":2}` || whole.Edit.Headers["x"] != "y" ||
		whole.Edit.By != "a-admin" || whole.Edit.Reason != "was a text" || whole.Status != dlq.Pending {
		t.Errorf("the dead letter after it: %+v, edit %+v", whole, whole.Edit)
	}
	lines := b.auditEntries(t, "")
	if len(lines) != 1 || lines[0].Action != "edit" || lines[0].State != auditDone || lines[0].Detail != `{"changed":["payload","header traceparent","header x"]}` {
		t.Errorf("audit: %+v", lines)
	}
	b.ask(t, access.Admin, "POST", fmt.Sprintf("/v1/dead-letters/%s/edit", gocql.MustRandomUUID()), `{"payload_text":"1"}`, "If-Match", `"1"`).problemIn(t, http.StatusNotFound)
}

// An edited event must fit the schema of its topic, as a new one must, and has the URL of the
// schema that it fits.
func TestEdit_MustFitTheContract(t *testing.T) {
	t.Parallel()
	fake := srfake.New()
	t.Cleanup(fake.Close)
	fake.SeedSchema("OrderCreated-value", 1, 1, sr.Schema{Type: sr.TypeJSON, Schema: `{"properties":{"n":{"type":"integer"}}}`})
	schemas, err := registry.New(fake.URL(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(c *Config) { c.Registry = schemas })
	edit := func(l *dlq.DeadLetter, body string) answer {
		t.Helper()
		return b.ask(t, access.Admin, "POST", "/v1/dead-letters/"+l.EventID.String()+"/edit", body, "If-Match", `"1"`)
	}
	made := func(topic string, headers map[string]string) *dlq.DeadLetter {
		t.Helper()
		l := testDeadLetter(topic, 1)
		l.AggregateID, l.Topic, l.Headers = l.EventID.String(), topic, headers
		return b.writeDeadLetter(t, l, time.Time{})
	}
	old, own := made("OrderCreated", map[string]string{outbox.HeaderDataSchema: fake.URL() + "/schemas/ids/9"}), made("OrderCreated", map[string]string{outbox.HeaderDataSchema: "/own"})
	var got EditedBody
	edit(old, `{"payload_text":"{\"n\":\"x\"}","dry_run":true}`).into(t, http.StatusOK, &got)
	if len(got.Problems) != 1 || !strings.Contains(got.Problems[0], "does not fit schema 1 of OrderCreated-value: /n") {
		t.Errorf("a dry run of what does not fit: %+v", got)
	}
	if p := edit(old, `{"payload_text":"{\"n\":\"x\"}"}`).problemIn(t, http.StatusUnprocessableEntity); len(p.Errors) != 1 {
		t.Errorf("what does not fit: %+v", p)
	}
	if l := b.mustRead(t, old); l.Version != 1 {
		t.Fatalf("version %d after refused edits", l.Version)
	}
	for _, x := range []struct {
		l    *dlq.DeadLetter
		want string
	}{{old, fake.URL() + "/schemas/ids/1"}, {own, "/own"}, {made("free", nil), ""}} {
		edit(x.l, `{"payload_text":"{\"n\":2}"}`).into(t, http.StatusOK, nil)
		if l := b.mustRead(t, x.l); l.Edit == nil || l.Edit.Headers[outbox.HeaderDataSchema] != x.want {
			t.Errorf("the edited event is %+v, want schema %q", l.Edit, x.want)
		}
	}
	unknown := made("unknown", nil)
	fake.Close()
	if p := edit(unknown, `{"payload_text":"1"}`).problemIn(t, http.StatusUnprocessableEntity); len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, "the payload cannot be checked now") || b.mustRead(t, unknown).Version != 1 {
		t.Errorf("while the registry is away: %+v", p)
	}
	if p := edit(unknown, `{}`).problemIn(t, http.StatusUnprocessableEntity); !strings.Contains(p.Errors[0].Message, "changes nothing") {
		t.Errorf("what changes nothing: %+v", p)
	}
}
