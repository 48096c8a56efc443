package layout

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// An exclusion of the race detector is valid for one version of a library:
// after an update it is checked again or removed.
func TestDetector_KnowsRacesOfTheseVersions(t *testing.T) {
	t.Parallel()
	known, err := os.ReadFile(filepath.Join(root, "test", "detector.known"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?m)^# (\S+/\S+) (v\S+): `).FindAllStringSubmatch(string(known), -1)
	left := regexp.MustCompile(`(?m)^race`).FindAllString(string(known), -1)
	if len(named) == 0 || len(named) != len(left) {
		t.Fatalf("%d versions are named for %d races", len(named), len(left))
	}
	for _, n := range named {
		module, version := n[1], n[2]
		cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{(or .Replace .).Version}}", module)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if got := strings.TrimSpace(string(out)); got != version {
			t.Errorf("the build has %s %s, not %s: check whether the race still exists", module, got, version)
		}
	}
}
