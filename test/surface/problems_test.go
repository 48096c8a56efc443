package surface

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// problemRow is a type in the description of an API.
	problemRow = regexp.MustCompile("(?m)^\\| (\\d+ \\| `(urn:[^`]+)` \\|.*)$")
	problemURN = regexp.MustCompile(`"(urn:scylla-outbox:problem:[a-z-]+)"`)
	// problemName is the use of a type.
	problemName = regexp.MustCompile(`\bhttpapi\.(Type[A-Z]\w+)`)
	// problemType is the declaration of a type.
	problemType = regexp.MustCompile(`(?m)^\s+(Type\w+)\s+= "(urn:[^"]+)"`)
)

// answering are the packages whose problems an API answers with, beside the ones that every API
// has. The client's is the last.
var answering = map[string][]string{
	"orders":        {"orders"},
	"messages":      {"messages", "internal/stream", "outbox/messages"},
	"subscriptions": {"subscriptions/api", "outbox/subscriptions"},
	"admin":         {"internal/admin", "internal/admin/topics"},
}

// A type of problems has one status and one meaning in all APIs, and the description of an API
// has every type that its code answers with.
func TestProblems(t *testing.T) {
	t.Parallel()
	types, err := os.ReadFile(filepath.Join(root, "internal", "httpapi", "types.go"))
	if err != nil {
		t.Fatal(err)
	}
	urn := make(map[string]string)
	for _, m := range problemType.FindAllStringSubmatch(string(types), -1) {
		urn[m[1]] = m[2]
	}
	rows, listed, described := make(map[string]string), make(map[string]bool), make(map[string]map[string]bool)
	for name, document := range documents(t) {
		var d struct{ Info struct{ Description string } }
		if err := json.Unmarshal(document, &d); err != nil {
			t.Fatal(err)
		}
		described[name] = make(map[string]bool)
		for _, m := range problemRow.FindAllStringSubmatch(d.Info.Description, -1) {
			row, typ := m[1], m[2]
			if described[name][typ] || rows[typ] != "" && rows[typ] != row {
				t.Errorf("%s describes %s twice, or otherwise than another API:\n%s\n%s", name, typ, row, rows[typ])
			}
			described[name][typ], listed[typ], rows[typ] = true, true, row
		}
	}
	if all := slices.Sorted(maps.Values(urn)); !slices.Equal(all, slices.Sorted(maps.Keys(listed))) || len(all) < 40 {
		t.Errorf("the APIs describe %d types, the code has %d", len(listed), len(all))
	}
	for name, dirs := range answering {
		for _, dir := range dirs {
			used := 0
			for path, text := range sources(t, dir) {
				for _, m := range problemName.FindAllStringSubmatch(text, -1) {
					if m[1] == "TypeHungUp" {
						continue
					}
					if used++; !described[name][urn[m[1]]] {
						t.Errorf("%s answers with %s, which %s does not describe", path, m[1], name)
					}
				}
				for _, m := range problemURN.FindAllStringSubmatch(text, -1) {
					if used++; !described[name][m[1]] {
						t.Errorf("%s knows %s, which %s does not describe", path, m[1], name)
					}
				}
			}
			if used < 2 {
				t.Errorf("%s has %d types", dir, used)
			}
		}
	}
	// Only the catalogue makes types. The modules of clients cannot import it.
	walk(t, root, ".go", func(path, text string) {
		own, _ := filepath.Rel(root, path)
		if strings.HasSuffix(path, "_test.go") || own == filepath.Join("internal", "httpapi", "types.go") || strings.HasPrefix(own, "test"+string(filepath.Separator)) || strings.HasPrefix(own, "devkit") {
			return
		}
		for _, m := range problemURN.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(own, "outbox"+string(filepath.Separator)) || !listed[m[1]] {
				t.Errorf("%s has %s: use a type of internal/httpapi", own, m[1])
			}
		}
	})
}

// sources returns the files of a package, without tests and the packages below it.
func sources(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	walk(t, filepath.Join(root, dir), ".go", func(path, text string) {
		if filepath.Dir(path) == filepath.Join(root, dir) && !strings.HasSuffix(path, "_test.go") {
			files[path] = text
		}
	})
	return files
}
