package layout

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDesign_ClocksHasEveryTable finds a table that docs/design does not explain: how it is
// written, and why clocks do not matter to it.
func TestDesign_ClocksHasEveryTable(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(read(t, filepath.Join(root, "docs/design/README.md")), "## Clocks and write timestamps")
	section, _, _ = strings.Cut(section, "\n## ")
	files, err := filepath.Glob(filepath.Join(root, "schema/cql/*/*.cql"))
	if err != nil || !found {
		t.Fatal("no such section", err)
	}
	table, seen := regexp.MustCompile(`CREATE TABLE IF NOT EXISTS \{\{\.Keyspace\}\}\.(\w+)`), 0
	for _, f := range files {
		for _, m := range table.FindAllStringSubmatch(read(t, f), -1) {
			seen++
			if !strings.Contains(section, "`"+m[1]+"`") {
				t.Errorf("%s creates %s, which the section does not have", f, m[1])
			}
		}
	}
	if seen == 0 {
		t.Error("found no table: the pattern is wrong")
	}
}
