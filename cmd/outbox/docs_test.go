package main

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/api"
	"github.com/scylla-outbox/scylla-outbox/test/clitest"
	"github.com/scylla-outbox/scylla-outbox/test/subfake"
)

// dotted matches a setting in backticks.
var dotted = regexp.MustCompile("`((?:scylla|kafka|http|admin|relay|dlq|schema|log|messages|watch|subscriptions|notifications|retention|verify)\\.[a-z_]+)\\b[^.(/`]*`")

// Every command, flag and setting that a document names is there.
func TestDocs_CommandsAndSettings(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, s := range app.Settings {
		keys = append(keys, s.Key)
	}
	clitest.CheckDocuments(t, "../..", "outbox|bin/outbox", 50, newRoot(io.Discard, io.Discard))
	named := 0
	clitest.Documents(t, "../..", func(file, text string) {
		for _, m := range dotted.FindAllStringSubmatch(text, -1) {
			named++
			if isFile := strings.HasSuffix(m[1], ".cql") || strings.HasSuffix(m[1], ".yaml"); !isFile && !slices.Contains(keys, m[1]) {
				t.Errorf("%s: %s is no setting", file, m[1])
			}
		}
	})
	if named < 50 {
		t.Errorf("found %d settings: the pattern is wrong", named)
	}
}

// A command of the runbook runs as it is written: it has the reason that a change requires.
func TestDocs_RunbookHasReasons(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operators/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	root, changes := newRoot(io.Discard, io.Discard), 0
	for _, m := range regexp.MustCompile("(?m)(?:`|^\\$ )outbox ([^`|\n]+)").FindAllStringSubmatch(string(text), -1) {
		cmd, args, err := root.Find(strings.Fields(m[1]))
		if err != nil || len(args) == 0 || cmd.Flags().Lookup("reason") == nil || cmd.Name() == "verify" && !slices.Contains(args, "--repair") {
			continue
		}
		if changes++; !slices.Contains(args, "--reason") && !slices.Contains(args, "--dry-run") {
			t.Errorf("outbox %s lacks --reason", m[1])
		}
	}
	if changes < 10 {
		t.Errorf("found %d changes: the pattern is wrong", changes)
	}
}

// endpoint is an operation in backticks.
var endpoint = regexp.MustCompile("`(GET|POST|PUT|DELETE) (/v1/[^ `?]*)`")

// Every operation that the pages for consumers name is one of the APIs of consumers and
// operators.
func TestDocs_Operations(t *testing.T) {
	t.Parallel()
	server, err := api.New(api.Config{Service: subfake.New("i1")})
	if err != nil {
		t.Fatal(err)
	}
	service, err := messages.NewService(nil, messages.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := humago.New(http.NewServeMux(), huma.DefaultConfig("messages", "1"))
	messages.NewAPI(service).Register(h)
	messages.NewAPI(service).RegisterMany(h)
	subscriptions, err1 := server.OpenAPI()
	intake, err2 := h.OpenAPI().MarshalJSON()
	admin, err3 := os.ReadFile("../../internal/admin/testdata/openapi.json")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, description := range [][]byte{subscriptions, intake, admin} {
		var d struct{ Paths map[string]map[string]any }
		if err := json.Unmarshal(description, &d); err != nil {
			t.Fatal(err)
		}
		for path, operations := range d.Paths {
			for method := range operations {
				known[strings.ToUpper(method)+" "+path] = true
			}
		}
	}
	for file, least := range map[string]int{"message-queues.md": 20, "messages.md": 4, "subscriptions.md": 2} {
		text, err := os.ReadFile(filepath.Join("../../docs", file))
		if err != nil {
			t.Fatal(err)
		}
		named := endpoint.FindAllStringSubmatch(string(text), -1)
		for _, m := range named {
			if !known[m[1]+" "+m[2]] {
				t.Errorf("%s: %s %s is no operation", file, m[1], m[2])
			}
		}
		if len(named) < least {
			t.Errorf("%s: found %d operations, want at least %d: the expression is wrong", file, len(named), least)
		}
	}
}

// transforms matches a subscription with a transform, and the lines before and after it.
var transforms = regexp.MustCompile("(?s)```yaml\n([^`]*\ntransform: [^`]*)```\n```json\n([^\n]+)\n([^\n]+)\n```")

// A documented transform has the documented result.
func TestDocs_Transforms(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/subscriptions.md")
	if err != nil {
		t.Fatal(err)
	}
	all := transforms.FindAllStringSubmatch(string(text), -1)
	if len(all) == 0 {
		t.Error("found no transform: the expression is wrong")
	}
	for _, m := range all {
		s, err := readSubscriptions(strings.NewReader(m[1]), "-")
		if err != nil {
			t.Fatal(err)
		}
		x, err := filter.CompileTransform(s[0].Transform)
		if err != nil {
			t.Fatal(err)
		}
		before, want := kafkarecord.Event{AggregateID: "order-1"}, kafkarecord.Event{}
		if err := errors.Join(json.Unmarshal([]byte(m[2]), &before), json.Unmarshal([]byte(m[3]), &want)); err != nil {
			t.Fatal(err)
		}
		got, err := x.Apply(before)
		if err != nil || !maps.Equal(got.Headers, want.Headers) || !sameJSON(got.Data, want.Data) {
			t.Errorf("%s = %v %s, %v; want %v %s", s[0].Transform, got.Headers, got.Data, err, want.Headers, want.Data)
		}
	}
}

// texts matches title and text of a push delivery.
var texts = regexp.MustCompile(`(?m)^ *(?:title|text): '(.+)'$`)

// Documented texts have no errors.
func TestDocs_Texts(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/subscriptions.md")
	if err != nil {
		t.Fatal(err)
	}
	e := kafkarecord.Event{AggregateID: "order-1", Data: json.RawMessage(`{"total": "12.50", "currency": "EUR", "lines": [{"sku": "a"}, {"sku": "b"}]}`)}
	var got []string
	for _, m := range texts.FindAllStringSubmatch(string(doc), -1) {
		x, err := filter.CompileText(m[1])
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, x.Of(&e, "big-orders"))
	}
	if want := []string{"Order order-1 of 12.50 EUR", "Order order-1 of 12.50 EUR", "a, b"}; !slices.Equal(got, want) {
		t.Errorf("the texts are %q, want %q", got, want)
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)) == nil && reflect.DeepEqual(x, y)
}
