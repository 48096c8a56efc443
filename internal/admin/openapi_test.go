package admin

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestOpenAPI_Golden compares the description with the golden file and checks its
// references.
func TestOpenAPI_Golden(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	a := b.ask(t, "", "GET", "/openapi.json", "")
	var doc map[string]any
	a.into(t, 200, &doc)
	if doc["openapi"] != "3.1.0" {
		t.Errorf("openapi: %v", doc["openapi"])
	}
	if yaml := b.ask(t, "", "GET", "/openapi.yaml", ""); yaml.code != 200 || !strings.Contains(string(yaml.body), "openapi: 3.1.0") {
		t.Errorf("/openapi.yaml = %d", yaml.code)
	}
	// The examples are in examples.json, which TestOpenAPI_ExamplesAreTrue compares with
	// the responses.
	withoutExamples(doc["paths"])
	pretty, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	pretty = append(pretty, '\n')
	const golden = "testdata/openapi.json"
	if *update {
		if err := os.WriteFile(golden, pretty, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != string(pretty) {
		t.Errorf("the description is not that of %s (%v); go test ./internal/admin -run Golden -update", golden, err)
	}

	parts := doc["components"].(map[string]any)
	var refs func(v any)
	refs = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				kind, name, ok := strings.Cut(strings.TrimPrefix(ref, "#/components/"), "/")
				if all, _ := parts[kind].(map[string]any); !ok || all[name] == nil {
					t.Errorf("%s leads nowhere", ref)
				}
			}
			for _, w := range v {
				refs(w)
			}
		case []any:
			for _, w := range v {
				refs(w)
			}
		}
	}
	refs(doc)
	// A dry run creates no job, so its response must not be described as one.
	answers := doc["paths"].(map[string]any)["/v1/jobs"].(map[string]any)["post"].(map[string]any)["responses"].(map[string]any)
	for code, want := range map[string]string{"200": "DryJobBody", "202": "JobBody"} {
		a, _ := json.Marshal(answers[code])
		if !strings.Contains(string(a), `"#/components/schemas/`+want+`"`) {
			t.Errorf("create-job answers %s with %s, want a %s", code, a, want)
		}
	}
	ids := make(map[string]bool)
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			op := op.(map[string]any)
			id, _ := op["operationId"].(string)
			if ids[id] || id == "" || op["summary"] == "" || op["security"] == nil {
				t.Errorf("%s %s: operation id %q, summary %v, security %v", method, path, id, op["summary"], op["security"])
			}
			ids[id] = true
			if role, _ := op["x-role"].(string); !slices.Contains(access.Roles, access.Role(role)) {
				t.Errorf("%s needs the role %q", id, role)
			}
			var named []string
			for _, part := range strings.Split(path, "/") {
				if strings.HasPrefix(part, "{") {
					named = append(named, strings.Trim(part, "{}"))
				}
			}
			params, _ := op["parameters"].([]any)
			for _, p := range params {
				if p := p.(map[string]any); p["in"] == "path" {
					named = slices.DeleteFunc(named, func(n string) bool { return n == p["name"] })
				}
			}
			if len(named) > 0 {
				t.Errorf("%s describes no parameter %v", id, named)
			}
		}
	}
	if len(ids) < 15 {
		t.Errorf("only %d operations", len(ids))
	}
}

// withoutExamples removes the examples of requests and responses.
func withoutExamples(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["schema"] != nil && v["in"] == nil {
			delete(v, "example")
		}
		for _, w := range v {
			withoutExamples(w)
		}
	case []any:
		for _, w := range v {
			withoutExamples(w)
		}
	}
}

// TestOpenAPI_TakesNoNull: strictJSON refuses null, so no request may be described
// as if it could hold one.
func TestOpenAPI_TakesNoNull(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var doc map[string]any
	b.ask(t, "", "GET", "/openapi.json", "").into(t, 200, &doc)
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	seen := make(map[string]bool)
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if types, ok := v["type"].([]any); ok && slices.Contains(types, any("null")) {
				t.Errorf("%s may be null", at)
			}
			if ref, ok := v["$ref"].(string); ok && !seen[ref] {
				seen[ref] = true
				name := strings.TrimPrefix(ref, "#/components/schemas/")
				walk(name, schemas[name])
			}
			for k, w := range v {
				walk(at+"."+k, w)
			}
		case []any:
			for _, w := range v {
				walk(at, w)
			}
		}
	}
	requests := 0
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			op := op.(map[string]any)
			walk(method+" "+path, op["parameters"])
			if body := op["requestBody"]; body != nil {
				walk(method+" "+path, body)
				requests++
			}
		}
	}
	if requests < 10 {
		t.Errorf("only %d operations with a body", requests)
	}
}
