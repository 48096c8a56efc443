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
	for module, want := range map[string]int{".": 2, "devkit": 2, "outbox": 0} {
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

// TestRelease_ImagesAndSignatures checks that the chart and the commands that verify a release
// name the images and the workflow of releases.
func TestRelease_ImagesAndSignatures(t *testing.T) {
	t.Parallel()
	file := func(name string) string { return read(t, filepath.Join(root, name)) }
	images := regexp.MustCompile(`repositories: \[(\S+)\]`).FindStringSubmatch(file(".goreleaser.yaml"))
	if images == nil {
		t.Fatal(".goreleaser.yaml has no repository of images")
	}
	version := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`).FindStringSubmatch(file("CHANGELOG.md"))[1]
	if !strings.Contains(file("deploy/kubernetes/chart/values.yaml"), "repository: "+images[1]+"\n") {
		t.Errorf("the chart has another image than %s", images[1])
	}
	file(".github/workflows/release.yml") // the identity below names it
	for _, want := range []string{
		"--certificate-identity https://github.com/scylla-outbox/scylla-outbox/.github/workflows/release.yml@refs/tags/v" + version + "\n",
		images[1] + ":" + version + "\n",
	} {
		if !strings.Contains(file("docs/operators/deployment.md"), want) {
			t.Errorf("docs/operators/deployment.md lacks %q", want)
		}
	}
}
