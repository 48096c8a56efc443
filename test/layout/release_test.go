package layout

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRelease_VersionsAgree checks that the chart and the requirements between the modules have
// the version of the changelog, and that a release requires a tag of each nested module.
func TestRelease_VersionsAgree(t *testing.T) {
	t.Parallel()
	file := func(name string) string { return read(t, filepath.Join(root, name)) }
	heading := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`).FindStringSubmatch(file("CHANGELOG.md"))
	if heading == nil {
		t.Fatal("CHANGELOG.md has no version")
	}
	version := heading[1]
	for _, field := range []string{"version", "appVersion"} {
		if !strings.Contains(file("deploy/kubernetes/chart/Chart.yaml"), "\n"+field+": "+version+"\n") {
			t.Errorf("Chart.yaml has another %s than %s, the version of CHANGELOG.md", field, version)
		}
	}
	own := regexp.MustCompile(`(?m)^\s(github\.com/scylla-outbox/scylla-outbox\S*) v(\S+)`)
	tags := regexp.MustCompile(`for module in ([^;]+);`).FindStringSubmatch(file(".github/workflows/release.yml"))
	if tags == nil {
		t.Fatal("release.yml requires no tags")
	}
	for module, want := range map[string]int{".": 3, "devkit": 2, "outbox": 0, "outbox/kafkarecord": 1} {
		required := own.FindAllStringSubmatch(file(module+"/go.mod"), -1)
		if len(required) < want {
			t.Errorf("module %s requires %d modules of the repository, want %d", module, len(required), want)
		}
		for _, r := range required {
			if r[2] != version {
				t.Errorf("module %s requires %s %s, and CHANGELOG.md has %s", module, r[1], r[2], version)
			}
		}
		if module != "." && !slices.Contains(strings.Fields(tags[1]), module) {
			t.Errorf("release.yml does not require the tag of %s", module)
		}
	}
}
