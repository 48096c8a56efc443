// Package layout checks the rules of the tree: the imports of packages, and the
// metrics in deployed files.
package layout

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/scylla-outbox/scylla-outbox/"
	page   = root + "/docs/design/layout.md"
)

var update = flag.Bool("update", false, "rewrite docs/design/layout.md")

// layers are the components of the product, the lowest first. A package belongs to the
// longest component that its path begins with, and imports packages of its own component and of the
// components that it lists, nothing else of the project. internal includes its own parts that come
// before it, which import less.
var layers = []struct {
	component, does string
	imports         []string
}{
	{"outbox/api", "what the clients of the HTTP APIs share", nil},
	{"outbox", "the library of other teams: a module of its own, which imports no part of the product", []string{"outbox/api"}},
	{"outbox/messages", "the client of messages", []string{"outbox", "outbox/api"}},
	{"outbox/subscriptions", "the client of subscriptions", []string{"outbox", "outbox/api"}},
	{"internal/retry", "the pauses between attempts", nil},
	{"internal/jsonform", "the bodies of untrusted requests", nil},
	{"internal/trace", "the headers of traces", []string{"outbox"}},
	{"internal/httpapi", "the common part of the HTTP APIs, without access and processes", []string{"internal/jsonform", "internal/trace"}},
	{"internal", "what the components share", []string{"internal", "outbox"}},
	{"internal/admin/console", "the web console, embedded", nil},
	{"internal/verify", "the verification, which shares nothing with the relay but the format of an event", []string{"internal", "outbox"}},
	{"notify", "notifications to people and webhooks", []string{"internal/retry"}},
	{"schema", "the tables, and the tool that makes them", []string{"internal", "outbox"}},
	{"relay/share", "which instance has which shard", []string{"internal"}},
	{"dlq", "dead letters: the store, jobs, archive, notifications", []string{"internal", "outbox", "notify"}},
	{"schedule", "messages of a later time", []string{"internal", "outbox"}},
	{"relay", "from the CDC log to the topics", []string{"internal", "outbox", "dlq"}},
	{"subscriptions", "a queue over the topics", []string{"internal", "outbox", "outbox/subscriptions", "dlq", "notify"}},
	{"messages", "intake of messages", []string{"internal", "outbox", "schedule", "subscriptions"}},
	{"orders", "the order service, the worked example", []string{"internal", "outbox"}},
	{"internal/admin", "the operators' API and console", []string{"internal", "outbox", "outbox/messages", "dlq", "subscriptions", "relay/share", "messages"}},
	{
		"internal/app", "settings and assembly of the services",
		[]string{"internal", "internal/admin", "internal/admin/console", "internal/verify", "outbox", "outbox/subscriptions", "notify", "schema", "dlq", "schedule", "relay", "relay/share", "subscriptions", "messages", "orders"},
	},
	{"internal/doctor", "checks of an installation", []string{"internal", "internal/app", "internal/verify", "outbox", "schema", "dlq", "relay", "relay/share"}},
	{
		"cmd/outbox", "the program: no embedded engine, no benchmark",
		[]string{"internal", "internal/admin", "internal/app", "internal/doctor", "internal/verify", "outbox", "outbox/api", "outbox/messages", "outbox/subscriptions", "schema", "dlq", "schedule", "relay", "relay/share", "subscriptions", "messages"},
	},
	{"devkit/brokerstate", "repairs the state of the embedded broker", nil},
	{"devkit/scyllafake", "the embedded database", nil},
	{"devkit/scyllafake/scyllatest", "a database for tests", []string{"internal", "schema", "devkit/scyllafake", "test"}},
	{
		"devkit", "the embedded engines, benchmarks, and outbox-dev",
		[]string{"internal", "internal/app", "internal/verify", "outbox", "outbox/subscriptions", "schema", "schedule", "relay", "relay/share", "messages", "orders", "devkit/brokerstate", "devkit/scyllafake", "test"},
	},
	{"examples", "programs to copy", []string{"outbox/subscriptions"}},
}

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Name, Doc string
	Imports               []string
}

func TestImports_FollowTheLayers(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if within(name, "test") || name == "relay/internal/relaytest" { // what tests share
			continue
		}
		of := findLayer(name)
		if of < 0 {
			t.Errorf("%s is in no component of layers", name)
			continue
		}
		l := layers[of]
		for _, i := range p.Imports {
			dep, ours := strings.CutPrefix(i, module)
			if !ours {
				continue
			}
			to := findLayer(dep)
			if to == of {
				continue
			}
			target := "test"
			if to >= 0 {
				target = layers[to].component
				if within(target, "internal") && to < findLayer("internal") && !slices.Contains(l.imports, target) {
					target = "internal"
				}
			}
			if !slices.Contains(l.imports, target) {
				t.Errorf("%s imports %s: %s may import %s", name, dep, l.component, strings.Join(l.imports, ", "))
			}
			used[l.component+" "+target] = true
		}
	}
	for _, l := range layers {
		for _, i := range l.imports {
			if !used[l.component+" "+i] {
				t.Errorf("no package of %s imports one of %s: remove it from layers", l.component, i)
			}
		}
	}
}

// TestDesign_LayoutIsGenerated compares docs/design/layout.md with the tree.
func TestDesign_LayoutIsGenerated(t *testing.T) {
	t.Parallel()
	packages := map[int][]listed{}
	for _, p := range list(t) {
		packages[findLayer(strings.TrimPrefix(p.ImportPath, module))] = append(packages[findLayer(strings.TrimPrefix(p.ImportPath, module))], p)
	}
	var b strings.Builder
	b.WriteString("# Layout\n\nEach package with the first sentence of its documentation, and what a component may import beside itself: " +
		"`test/layout` checks it and writes this page (`go test ./test/layout -run Layout -update`).\n")
	for i, l := range layers {
		fmt.Fprintf(&b, "\n## %s\nThis is %s.", l.component, l.does)
		if len(l.imports) > 0 {
			fmt.Fprintf(&b, " Imports: `%s`.", strings.Join(l.imports, "`, `"))
		}
		b.WriteString("\n\n| Package | |\n|---|---|\n")
		for _, p := range packages[i] {
			doc, _, _ := strings.Cut(p.Doc, ". ")
			doc = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(doc, "Package "+p.Name+" "), "Command "+filepath.Base(p.ImportPath)+" "), ".")
			if doc == "" {
				t.Errorf("%s has no documentation", p.ImportPath)
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.TrimPrefix(p.ImportPath, module), doc)
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	if got := read(t, page); got != b.String() {
		t.Errorf("%s differs from the packages: go test ./test/layout -run Layout -update", page)
	}
}

// list returns the packages of product, library and devkit by path.
func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Doc,Imports", "./...", module+"devkit/...", module+"outbox/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec, found := json.NewDecoder(strings.NewReader(string(out))), map[string]listed{}
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		found[p.ImportPath] = p
	}
	if len(found) < 100 {
		t.Fatalf("go list found %d packages", len(found))
	}
	sorted := make([]listed, 0, len(found))
	for _, path := range slices.Sorted(maps.Keys(found)) {
		sorted = append(sorted, found[path])
	}
	return sorted
}

// findLayer returns the index of the component of a package, or -1.
func findLayer(name string) int {
	of := -1
	for i, l := range layers {
		if within(name, l.component) && (of < 0 || len(l.component) > len(layers[of].component)) {
			of = i
		}
	}
	return of
}

func within(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }
