package surface

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/api"
	"github.com/scylla-outbox/scylla-outbox/test/subfake"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

const root = "../.."

var update = flag.Bool("update", false, "rewrite the files of testdata")

// compare compares the surface with a file of testdata.
func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if added, removed := difference(string(want), got); len(added)+len(removed) > 0 || got != string(want) {
		t.Errorf("the surface is not that of test/surface/%s. If CONTRIBUTING.md allows the change: go test ./test/surface -update\nadded:\n%s\nremoved:\n%s",
			path, strings.Join(added, "\n"), strings.Join(removed, "\n"))
	}
}

// difference returns the lines that only one of two texts has.
func difference(was, is string) (added, removed []string) {
	only := func(a, b string) (lines []string) {
		count := make(map[string]int)
		for line := range strings.Lines(b) {
			count[line]++
		}
		for line := range strings.Lines(a) {
			if count[line]--; count[line] < 0 {
				lines = append(lines, strings.TrimRight(line, "\n"))
			}
		}
		return lines
	}
	return only(is, was), only(was, is)
}

func TestSurface_Settings(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, s := range app.Settings {
		fmt.Fprintf(&b, "%s %s = %s\n", s.Key, s.Env(), s.Text())
	}
	compare(t, "settings.txt", b.String())
}

// metricName is a literal that names a metric: every one of the program begins so.
var metricName = regexp.MustCompile(`"(outbox_[a-z0-9_]+|dead_letters_[a-z0-9_]+)"`)

func TestSurface_Metrics(t *testing.T) {
	t.Parallel()
	var names []string
	walk(t, root, ".go", func(path, text string) {
		if strings.HasSuffix(path, "_test.go") || !strings.Contains(text, `client_golang/prometheus"`) || strings.HasPrefix(path, filepath.Join(root, "devkit")) || strings.HasPrefix(path, filepath.Join(root, "test")) {
			return
		}
		for _, m := range metricName.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
	})
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 100 {
		t.Errorf("found %d metrics: the expression is wrong", len(names))
	}
	compare(t, "metrics.txt", strings.Join(names, "\n")+"\n")
}

// documentedMetric matches a metric in code of a document, or in a query; one that ends in _ is a prefix.
var documentedMetric = regexp.MustCompile("[`(](outbox_[a-z0-9_]+)")

// Every metric that a document names exists.
func TestSurface_DocumentedMetrics(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile(filepath.Join("testdata", "metrics.txt"))
	tables, err2 := os.ReadFile(filepath.Join("testdata", "tables.cql"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	metrics, named := strings.Fields(string(list)), 0
	walk(t, root, ".md", func(path, text string) {
		for _, m := range documentedMetric.FindAllStringSubmatch(text, -1) {
			named++
			name := regexp.MustCompile("_(bucket|count|sum)$").ReplaceAllString(m[1], "")
			prefix := strings.HasSuffix(name, "_") && slices.ContainsFunc(metrics, func(metric string) bool { return strings.HasPrefix(metric+"_", name) })
			if !prefix && !slices.Contains(metrics, name) && !strings.Contains(string(tables), "."+name+" (") {
				t.Errorf("%s names the metric %s, which does not exist", path, m[1])
			}
		}
	})
	if named < 80 {
		t.Errorf("found %d metrics: the expression is wrong", named)
	}
}

// comment is a comment of CQL.
var comment = regexp.MustCompile(`(?m)[ \t]*(--|//).*$`)

func TestSurface_Tables(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	walk(t, filepath.Join(root, "schema", "cql"), ".cql", func(path, text string) {
		fmt.Fprintf(&b, "-- %s\n", filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator))))
		for line := range strings.Lines(comment.ReplaceAllString(text, "")) {
			if line = strings.Join(strings.Fields(line), " "); line != "" {
				b.WriteString(line + "\n")
			}
		}
	})
	compare(t, "tables.cql", b.String())
}

// walk reads the files with an extension, in lexical order.
func walk(t *testing.T, dir, ext string, read func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ext:
			return nil
		}
		text, err := os.ReadFile(path)
		read(path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// documents returns the descriptions of the APIs.
func documents(t *testing.T) map[string][]byte {
	t.Helper()
	intake, err := messages.NewService(nil, messages.Config{})
	if err != nil {
		t.Fatal(err)
	}
	queues, err := api.New(api.Config{Service: subfake.New("i1")})
	if err != nil {
		t.Fatal(err)
	}
	ofQueues, err := queues.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	service, err := orders.New(nil, orders.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ofOrders, err := service.HTTP()
	if err != nil {
		t.Fatal(err)
	}
	hub, err := stream.New(stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ofMessages := messages.NewAPI(intake).HTTP()
	ofMessages.Routes = append(ofMessages.Routes, hub.Register)
	ofMessages.Problems = slices.Concat(ofMessages.Problems, stream.Problems())
	ofOperators := messages.NewAPI(intake).HTTP() // in the API of operators
	ofOperators.Routes = []func(huma.API){messages.NewAPI(intake).RegisterKept, messages.NewAPI(intake).RegisterMany}
	document := func(api apiserver.API) []byte {
		t.Helper()
		server, err := apiserver.New(api, apiserver.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return []byte(world.Request(t, server.Handler(), "GET", "/openapi.json", "").Text)
	}
	admin, err := os.ReadFile(filepath.Join(root, "internal", "admin", "testdata", "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"messages": document(ofMessages), "messages-of-operators": document(ofOperators), "subscriptions": ofQueues, "admin": admin, "orders": document(ofOrders),
	}
}

func TestSurface_HTTP(t *testing.T) {
	t.Parallel()
	for name, document := range documents(t) {
		var d map[string]any
		if err := json.Unmarshal(document, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var lines []string
		components, info := d["components"].(map[string]any), d["info"].(map[string]any)
		flatten("", map[string]any{
			"paths": d["paths"], "schemas": components["schemas"], "security schemes": components["securitySchemes"],
			"info": []any{info["title"], info["version"], info["license"]},
		}, &lines)
		if len(lines) < 100 {
			t.Errorf("%s: %d lines", name, len(lines))
		}
		compare(t, "http-"+name+".txt", strings.Join(lines, "\n")+"\n")
	}
}

// texts are the members of an OpenAPI document that people read.
var texts = []string{"description", "summary", "title", "tags", "example", "examples", "x-hint"}

// flatten writes each value of a document in one line with its path, without texts, so that a
// diff is read without its neighbours.
func flatten(path string, v any, lines *[]string) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			*lines = append(*lines, strings.TrimSpace(path)+" = {}")
		}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			_, text := v[k].(string)
			if slices.Contains(texts, k) && (text || !strings.HasSuffix(path, "properties")) {
				continue
			}
			flatten(path+" "+k, v[k], lines)
		}
	case []any:
		if len(v) == 0 {
			*lines = append(*lines, strings.TrimSpace(path)+" = []")
		}
		for i, w := range v {
			at := fmt.Sprint(i)
			if m, ok := w.(map[string]any); ok && m["name"] != nil {
				at = fmt.Sprint(m["in"], ":", m["name"])
			}
			if s, ok := w.(string); ok {
				*lines = append(*lines, strings.TrimSpace(path)+" has "+s)
				continue
			}
			flatten(path+" "+at, w, lines)
		}
	default:
		*lines = append(*lines, strings.TrimSpace(path)+" = "+fmt.Sprint(v))
	}
}
