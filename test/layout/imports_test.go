// Package layout checks the rules of the tree: the imports of packages, and the
// metrics in deployed files.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/scylla-outbox/scylla-outbox/"
)

// forbidden contains the packages that a package, and all below it, must not
// import, even indirectly.
var forbidden = map[string][]string{
	"cmd/outbox":                   {"devkit"}, // no embedded engine and no benchmark in production
	"outbox":                       {"relay", "orders", "dlq", "schema", "cmd", "internal"},
	"relay":                        {"orders", "cmd", "devkit"},
	"orders":                       {"relay", "dlq", "cmd", "devkit/scyllafake"},
	"dlq":                          {"relay", "orders", "cmd", "devkit/scyllafake"},
	"internal/admin/console":       {"relay", "orders", "dlq", "schema", "cmd", "internal"},
	"subscriptions/api":            {"relay", "orders", "dlq", "messages", "schedule", "schema", "cmd", "devkit"},
	"subscriptions/forward":        {"relay", "orders", "dlq", "messages", "schedule", "schema", "cmd", "devkit"},
	"internal/stream":              {"relay", "orders", "dlq", "messages", "schedule", "schema", "cmd", "devkit/scyllafake"},
	"schedule":                     {"relay", "orders", "dlq", "messages", "cmd", "devkit/scyllafake"},
	"messages":                     {"relay", "orders", "dlq", "cmd", "devkit/scyllafake"},
	"outbox/client":                {"relay", "orders", "dlq", "schema", "cmd", "internal"},
	"schema":                       {"relay", "orders", "dlq", "cmd", "devkit/scyllafake", "internal/daemon"},
	"internal/access":              {"relay", "orders", "dlq", "schema", "cmd", "devkit/scyllafake"},
	"notify":                       {"relay", "orders", "dlq", "schema", "cmd", "internal"},
	"internal/apidocs":             {"relay", "orders", "dlq", "schema", "cmd"},
	"devkit/brokerstate":           {"relay", "orders", "dlq", "schema", "cmd", "internal"},
	"internal/guard":               {"relay", "orders", "dlq", "schema", "cmd", "devkit/scyllafake"},
	"internal/httpapi":             {"relay", "orders", "dlq", "schema", "cmd", "internal/access", "internal/daemon", "internal/guard", "devkit/scyllafake"},
	"internal/trace":               {"relay", "orders", "dlq", "schema", "cmd", "internal"},
	"internal/jsonform":            {"relay", "orders", "dlq", "schema", "cmd", "internal"},
	"internal/daemon":              {"relay", "orders", "dlq", "schema", "cmd"},
	"internal/app":                 {"cmd", "devkit"},
	"internal/doctor":              {"cmd", "devkit"},
	"internal/settings":            {"relay", "orders", "dlq", "schema", "cmd", "internal/app"},
	"internal/verify":              {"relay", "orders", "dlq", "schema", "cmd", "internal/daemon", "devkit/scyllafake"},
	"devkit/scyllafake":            {"relay", "orders", "dlq", "schema", "cmd", "internal/daemon"},
	"devkit/scyllafake/scyllatest": {"relay", "orders", "dlq", "cmd", "internal/daemon"},
}

// allowed are the exceptions: services and relay share the event, and all share
// the backoff.
var allowed = map[string]bool{"internal/retry": true, "outbox": true}

func TestImports_RunOneWay(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Deps", "./...", module+"devkit/...", module+"outbox/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	checked := 0
	for {
		var p struct {
			ImportPath string
			Deps       []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		rule, ok := ruleFor(name)
		if !ok || name == "relay/internal/relaytest" { // what tests of the relay share
			continue
		}
		checked++
		for _, d := range p.Deps {
			dep, ours := strings.CutPrefix(d, module)
			if !ours || allowed[dep] || within(dep, rule) {
				continue
			}
			for _, f := range forbidden[rule] {
				if within(dep, f) {
					t.Errorf("%s imports %s; imports run cmd -> orders, relay -> dlq -> schema, outbox", name, dep)
				}
			}
		}
	}
	if checked < len(forbidden) {
		t.Errorf("checked %d packages, want at least one for each of the %d rules", checked, len(forbidden))
	}
}

// ruleFor finds the longest rule that a package falls under.
func ruleFor(name string) (rule string, ok bool) {
	for r := range forbidden {
		if within(name, r) && len(r) > len(rule) {
			rule, ok = r, true
		}
	}
	return rule, ok
}

func within(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }
