package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// Invalid requests receive an error with the name of the field, never 500.
func TestHostile_BadInputIsNamed(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{}).EventID.String()
	deadLetter := "/v1/dead-letters/" + id
	cursor := func(list string, position any) string { return httpapi.Cursor(formatPosition(position), list) }
	for _, tt := range []struct {
		method, path, body string
		code               int
		location           string
	}{
		{"GET", "/v1/dead-letters?status=dead", "", 422, "query.status[0]"},
		{"GET", "/v1/dead-letters?limit=0", "", 422, "query.limit"},
		{"GET", "/v1/dead-letters?limit=501", "", 422, "query.limit"},
		{"GET", "/v1/dead-letters?limit=x", "", 422, "query.limit"},
		{"GET", "/v1/dead-letters?since=yesterday", "", 422, "query.since"},
		{"GET", "/v1/dead-letters?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "", 422, "query.since"},
		{"GET", "/v1/dead-letters?cursor=%00%ff", "", 422, "query.cursor"},
		{"GET", "/v1/dead-letters?cursor=e30", "", 422, "query.cursor"},
		{"GET", "/v1/dead-letters?cursor=" + httpapi.Cursor("e30", "/v1/dead-letters"), "", 422, "query.cursor"},
		{"GET", "/v1/dead-letters?cursor=" + httpapi.Cursor("!", "/v1/dead-letters"), "", 422, "query.cursor"},
		{"GET", "/v1/dead-letters?cursor=" + cursor("/v1/dead-letters", map[string]any{"first_failed_at": 7}), "", 422, "query.cursor"},
		{"GET", "/v1/dead-letters?cursor=" + strings.Repeat("a", 600), "", 422, "query.cursor"},
		{"GET", "/v1/dead-letters?aggregate_id=" + strings.Repeat("a", 1001), "", 422, "query.aggregate_id"},
		{"GET", "/v1/dead-letters?aggregate_id=%ff", "", 422, "query.aggregate_id"},
		{"GET", "/v1/dead-letters/groups?error_class=%ed%a0%80", "", 422, "query.error_class"},
		{"GET", "/v1/dead-letters/1", "", 422, "path.event_id"},
		{"GET", "/v1/dead-letters/" + strings.Repeat("z", 36), "", 422, "path.event_id"},
		{"GET", "/v1/dead-letters/%3Cscript%3E", "", 422, "path.event_id"},
		{"GET", "/v1/dead-letters/groups?status=x", "", 422, "query.status[0]"},
		{"GET", "/v1/audit?cursor=x", "", 422, "query.cursor"},
		{"GET", "/v1/audit?cursor=" + cursor("/v1/audit", auditPlace{}), "", 422, "query.cursor"},
		{"GET", "/v1/audit?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "", 422, "query.since"},
		{"GET", "/v1/jobs?cursor=x", "", 422, "query.cursor"},
		{"GET", "/v1/jobs?cursor=" + cursor("/v1/jobs", "01a2005c-395d-72e3-8401-994110828553"), "", 422, "query.cursor"},
		{"GET", "/v1/jobs/x", "", 422, "path.id"},
		{"POST", deadLetter + "/discard", "{", 400, "body"},
		{"POST", deadLetter + "/discard", "[]", 422, "body"},
		{"POST", deadLetter + "/discard", `{"dry_run":null}`, 400, "body"},
		{"POST", deadLetter + "/discard", `{"dry_run":true,"dry_run":false}`, 400, "body"},
		{"POST", deadLetter + "/discard", `{"dry_run":7}`, 422, "body.dry_run"},
		{"POST", deadLetter + "/discard", `{"reason":"x"}`, 422, "body.reason"},
		{"POST", "/v1/dead-letters/x/discard", `{}`, 422, "path.event_id"},
		{"GET", "/v1/dead-letters?tag=a%20b", "", 422, "query.tag"},
		{"GET", "/v1/dead-letters/groups?tag=a,%00", "", 422, "query.tag"},
		{"GET", "/v1/dead-letters?min_priority=101", "", 422, "query.min_priority"},
		{"GET", "/v1/dead-letters?table=" + strings.Repeat("a", 501), "", 422, "query.table"},
		{"POST", deadLetter + "/set", `{}`, 422, "body"},
		{"POST", deadLetter + "/set", `{"priority":101}`, 422, "body.priority"},
		{"POST", deadLetter + "/set", `{"priority":1.5}`, 422, "body.priority"},
		{"POST", deadLetter + "/set", `{"add_tags":["a b"]}`, 422, "body.add_tags"},
		{"POST", deadLetter + "/set", `{"add_tags":["a"],"remove_tags":["a"]}`, 422, "body"},
		{"POST", deadLetter + "/set", `{"add_tags":["` + strings.Repeat(`a","`, 16) + `b"]}`, 422, "body.add_tags"},
		{"POST", "/v1/jobs", `{"action":"set","filter":{}}`, 422, "body"},
		{"POST", "/v1/jobs", `{"action":"set","filter":{},"set":{"add_tags":["é"]}}`, 422, "body.set.add_tags"},
		{"POST", "/v1/jobs", `{"action":"replay","filter":{},"set":{"priority":1}}`, 422, "body"},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","filter":{"tags":["a b"]}}`, 422, "body.filter.tags"},
		{"POST", "/v1/dead-letters/preview", `{"action":"discard","filter":{},"by_priority":true}`, 422, "body"},
		{"POST", "/v1/dead-letters/preview", `{"action":"explode","filter":{}}`, 422, "body.action"},
		{"POST", "/v1/dead-letters/preview", `{"action":"write","filter":{}}`, 422, "body.action"},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay"}`, 422, "body.filter"},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","ids":["x"]}`, 422, "body.ids[0]"},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","ids":["` + id + `"],"filter":{}}`, 422, "body.ids"},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","filter":{"status":["x"]}}`, 422, "body.filter.status[0]"},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","filter":{},"limit":-1}`, 422, "body.limit"},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","filter":{"since":"2026-01-02T00:00:00Z","until":"2026-01-01T00:00:00Z"}}`, 422, "body.filter.since"},
		{"POST", "/v1/jobs", `{"action":"replay"}`, 422, "body.filter"},
		{"POST", "/v1/jobs", `{"action":"replay","filter":{},"rate":-1}`, 422, "body.rate"},
		{"POST", "/v1/jobs", `{"action":"replay","filter":{},"batch_size":1001}`, 422, "body.batch_size"},
		{"POST", "/v1/jobs", `{"action":"discard","filter":{},"canary":true}`, 422, "body.canary"},
		{"POST", deadLetter + "/edit", `{"payload_text":"a","payload_base64":"YQ=="}`, 422, "body.payload_base64"},
		{"POST", deadLetter + "/edit", `{"payload_base64":"%"}`, 422, "body.payload_base64"},
		{"POST", deadLetter + "/edit", `{"headers":{"a":1}}`, 422, "body.headers.a"},
		{"GET", "/v1/nothing", "", 404, ""},
		{"DELETE", deadLetter, "", 405, ""},
		{"POST", "/v1/dead-letters/stats", `{}`, 405, ""},
	} {
		a := b.ask(t, access.Admin, tt.method, tt.path, tt.body, "If-Match", `"1"`)
		name := fmt.Sprintf("%s %.80s %.80s", tt.method, tt.path, tt.body)
		if a.code != tt.code {
			t.Errorf("%s = %d, want %d: %.300s", name, a.code, tt.code, a.body)
			continue
		}
		p := a.problemIn(t, tt.code)
		found := tt.location == ""
		for _, e := range p.Errors {
			found = found || e.Location == tt.location
		}
		if !found {
			t.Errorf("%s does not name %s: %.300s", name, tt.location, a.body)
		}
	}
	ids := strings.TrimSuffix(strings.Repeat(`"`+id+`",`, 10_001), ",")
	if p := b.ask(t, access.Admin, "POST", "/v1/dead-letters/preview", `{"action":"replay","ids":[`+ids+`]}`).problemIn(t, 422); p.Errors[0].Location != "body.ids" {
		t.Errorf("too many ids: %+v", p)
	}
	huge := `{"dry_run":"` + strings.Repeat("x", 3<<20) + `"}`
	b.ask(t, access.Admin, "POST", deadLetter+"/discard", huge).problemIn(t, http.StatusRequestEntityTooLarge)
	b.ask(t, access.Admin, "POST", deadLetter+"/edit", `{"payload_text":"`+strings.Repeat("x", maxEdit)+`"}`, "If-Match", `"1"`).problemIn(t, http.StatusRequestEntityTooLarge)
	deep := strings.Repeat("[", 100_000)
	if a := b.ask(t, access.Admin, "POST", "/v1/dead-letters/preview", deep); a.code >= 500 || a.code < 400 {
		t.Errorf("deeply nested JSON = %d", a.code)
	}
	if l, err := b.store.Read(t.Context(), mustID(t, id)); err != nil || l.Version != 1 {
		t.Errorf("something bad changed the dead letter: %+v, %v", l, err)
	}
}

// Errors before a handler have the same problem types as in the order API.
func TestAPI_RefusalsHaveTypes(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const preview = "/v1/dead-letters/preview"
	large := `{"action":"` + strings.Repeat("x", 3<<20) + `"}`
	for name, x := range map[string]struct {
		role               access.Role
		method, path, body string
		header             []string
		status             int
		typ                string
	}{
		"too large":      {access.Admin, "POST", preview, large, nil, 413, "body-too-large"},
		"not said to be": {access.Admin, "POST", preview, "{}", []string{"Content-Type", "text/plain"}, 415, "unsupported-media-type"},
		"compressed":     {access.Admin, "POST", preview, "{}", []string{"Content-Encoding", "gzip"}, 415, "unsupported-media-type"},
		"no JSON":        {access.Admin, "POST", preview, "{", nil, 400, "malformed-body"},
		"bad fields":     {access.Admin, "POST", preview, `{"action":"burn"}`, nil, 422, "invalid-fields"},
		"no token":       {"", "GET", "/v1/dead-letters/stats", "", nil, 401, "unauthorized"},
		"another role":   {access.Viewer, "POST", "/v1/dead-letters/" + gocql.MustRandomUUID().String() + "/discard", "{}", nil, 403, "forbidden"},
		"another site":   {access.Admin, "POST", preview, "{}", []string{"Origin", "https://evil.example"}, 403, "cross-site-request"},
		"nowhere":        {access.Admin, "GET", "/v2", "", nil, 404, "no-such-path"},
		"not so":         {access.Admin, "DELETE", preview, "", nil, 405, "method-not-allowed"},
	} {
		if p := b.ask(t, x.role, x.method, x.path, x.body, x.header...).problemIn(t, x.status); p.Type != "urn:scylla-outbox:problem:"+x.typ {
			t.Errorf("%s: %d %s %q, want the type %s", name, p.Status, p.Type, p.Detail, x.typ)
		}
	}
}

// A page of another origin cannot change anything, whatever its token.
func TestAPI_NoPageElsewhereChangesAnything(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]any
		}
	}
	if err := json.Unmarshal(b.ask(t, access.Viewer, "GET", "/openapi.json", "").body, &doc); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if method = strings.ToUpper(method); method == http.MethodGet {
				continue
			}
			seen++
			if op.Responses["403"] == nil {
				t.Errorf("%s %s does not say that it may be refused", method, path)
			}
			for status, headers := range map[int][][]string{
				403: {{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}},
				415: {{"Content-Type", "text/plain"}, {"Content-Type", "application/x-www-form-urlencoded"}, {"Content-Type", ""}},
			} {
				for _, header := range headers {
					a := b.ask(t, access.Admin, method, strings.NewReplacer("{event_id}", "x", "{id}", "x").Replace(path), "{}", header...)
					if a.code != status {
						t.Errorf("%s %s with %q = %d %s, want %d", method, path, header, a.code, a.body, status)
					}
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("%d operations change something", seen)
	}
}

// An error names the field and does not repeat the sent value, which may be a misplaced
// secret or a script.
func TestHostile_ErrorsDoNotRepeatValues(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const secret = "hunter2-sesame"
	script := `<script>` + secret + `</script>`
	q := url.QueryEscape(script)
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","filter":"` + secret},
		{"POST", "/v1/dead-letters/preview", `{"action":"` + secret + `","filter":{}}`},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","ids":["` + secret + `"]}`},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","filter":{"` + script + `":1}}`},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","filter":{"since":"` + secret + `"}}`},
		{"POST", "/v1/dead-letters/preview", `{"action":"replay","filter":{"status":["` + secret + `"]}}`},
		{"POST", "/v1/dead-letters/preview", `["` + secret + `"]`},
		{"POST", "/v1/dead-letters/preview", `"` + secret + `"`},
		{"POST", "/v1/dead-letters/preview", secret},
		{"POST", "/v1/dead-letters/preview", `{"a":"` + secret + `","a":1}`},
		{"POST", "/v1/jobs", `{"action":"archive","object":"` + secret + `"}`},
		{"GET", "/v1/dead-letters?status=" + q, ""},
		{"GET", "/v1/dead-letters?cursor=" + q, ""},
		{"GET", "/v1/dead-letters?limit=" + q, ""},
		{"GET", "/v1/dead-letters?since=" + q, ""},
		{"GET", "/v1/dead-letters/" + secret, ""},
		{"GET", "/v1/jobs/" + secret, ""},
		{"GET", "/v1/" + secret, ""},
		{"GET", "/" + url.PathEscape(script), ""},
	} {
		a := b.ask(t, access.Admin, tt.method, tt.path, tt.body)
		if a.code < 400 || a.code >= 500 || strings.Contains(string(a.body), secret) {
			t.Errorf("%s %s %s = %d %s, want an error of the client without the value", tt.method, tt.path, tt.body, a.code, a.body)
		}
	}
}
