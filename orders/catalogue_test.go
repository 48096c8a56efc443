package orders

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// Every example is valid by its schema, and every operation has one of the
// request and one of the response.
func TestOpenAPI_ExamplesAreValid(t *testing.T) {
	t.Parallel()
	s, err := New(nil, Config{})
	if err != nil {
		t.Fatal(err)
	}
	conf := huma.DefaultConfig("Orders", "1")
	conf.CreateHooks = nil
	h := humago.New(http.NewServeMux(), conf)
	s.register(h, true)
	doc := h.OpenAPI()
	count := 0
	check := func(where string, schema *huma.Schema, mode huma.ValidateMode, v any) {
		t.Helper()
		count++
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var plain any
		if err := json.Unmarshal(b, &plain); err != nil {
			t.Fatal(err)
		}
		var result huma.ValidateResult
		huma.Validate(doc.Components.Schemas, schema, huma.NewPathBuffer(nil, 0), mode, plain, &result)
		for _, err := range result.Errors {
			t.Errorf("%s: %v", where, err)
		}
	}
	for path, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Patch} {
			if op == nil {
				continue
			}
			where := op.OperationID + " of " + path
			if op.RequestBody != nil {
				media := op.RequestBody.Content["application/json"]
				if media.Example == nil {
					t.Errorf("%s has no example of a request", where)
				}
				check(where+" request", media.Schema, huma.ModeWriteToServer, media.Example)
			}
			for code, r := range op.Responses {
				for kind, media := range r.Content {
					if media.Example == nil && len(media.Examples) == 0 {
						t.Errorf("%s %s has no example of %s", where, code, kind)
					}
					if media.Example != nil {
						check(where+" "+code, media.Schema, huma.ModeReadFromServer, media.Example)
					}
					for name, e := range media.Examples {
						check(where+" "+code+" "+name, media.Schema, huma.ModeReadFromServer, e.Value)
					}
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("checked %d examples", count)
	}
}

// The page loads nothing from other servers.
func TestHTTP_DocsWorkOffline(t *testing.T) {
	t.Parallel()
	h := withoutDatabase(t)
	if r := world.Request(t, h, "GET", "/", ""); r.Status != 302 || r.Header.Get("Location") != "/docs" {
		t.Errorf("/ = %d to %q, want a redirect to /docs", r.Status, r.Header.Get("Location"))
	}
	page := world.Request(t, h, "GET", "/docs", "")
	if page.Status != 200 || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") || strings.Contains(page.Header.Get("Content-Security-Policy"), "http") {
		t.Fatalf("/docs = %d %v", page.Status, page.Header)
	}
	refs := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.Text, -1)
	if len(refs) < 4 {
		t.Errorf("the page refers to %v", refs)
	}
	for _, ref := range refs {
		if !strings.HasPrefix(ref[1], "/") {
			t.Errorf("the page refers to %s", ref[1])
		}
		if r := world.Request(t, h, "GET", ref[1], ""); r.Status != 200 || len(r.Text) < 50 {
			t.Errorf("%s = %d, %d bytes", ref[1], r.Status, len(r.Text))
		}
	}
	plain := world.Request(t, h, "GET", "/docs/swagger-ui-bundle.js", "")
	packed := world.Request(t, h, "GET", "/docs/swagger-ui-bundle.js", "", "Accept-Encoding", "gzip, br")
	if !strings.Contains(plain.Text, "SwaggerUIBundle") || packed.Header.Get("Content-Encoding") != "gzip" || len(packed.Text) > len(plain.Text)/2 {
		t.Errorf("the bundle has %d bytes, %d packed as %q", len(plain.Text), len(packed.Text), packed.Header.Get("Content-Encoding"))
	}
	for _, path := range []string{"/docs/../server.go", "/docs/none", "/docs/swagger-ui-bundle.js.gz"} {
		if r := world.Request(t, h, "GET", path, ""); r.Status == 200 {
			t.Errorf("%s is served", path)
		}
	}
}
