package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The configuration of releases has only keys that GoReleaser has, and the files that it
// names are there.
func TestRelease_ConfigurationIsValid(t *testing.T) {
	t.Parallel()
	v := newValidator(t)
	text := read(t, "../../.goreleaser.yaml")
	release := func(text string) (o object) {
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	if err := v.checkAs("goreleaser/Project", release(text)); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"package_nam:", "bin_dir:"} {
		right := map[string]string{"package_nam:": "package_name:", "bin_dir:": "bindir:"}[wrong]
		if v.checkAs("goreleaser/Project", release(strings.Replace(text, right, wrong, 1))) == nil {
			t.Errorf("the misspelt key %s is valid", wrong)
		}
	}
	named := 0
	for _, m := range regexp.MustCompile(`(?:deploy/[\w@./*-]+|\./cmd/[\w-]+|LICENSE|README\.md|CHANGELOG\.md)`).FindAllString(text, -1) {
		named++
		found := false
		for _, module := range []string{"../..", "../../devkit"} {
			files, err := filepath.Glob(filepath.Join(module, m))
			found = found || err == nil && len(files) > 0
		}
		if !found {
			t.Errorf("%s is not there", m)
		}
	}
	if named < 10 {
		t.Errorf("found %d files: the pattern is wrong", named)
	}
}

// A release builds what make build builds: with the same variable for the version.
func TestRelease_BuildsAsMakeDoes(t *testing.T) {
	t.Parallel()
	version := "github.com/scylla-outbox/scylla-outbox/internal/cli.Version="
	if !strings.Contains(read(t, "../../.goreleaser.yaml"), "-X "+version+"{{ .Version }}") {
		t.Errorf("the release does not set %s", version)
	}
	if _, err := os.Stat("../../internal/cli/version.go"); err != nil || !strings.Contains(read(t, "../../internal/cli/version.go"), `var Version = `) {
		t.Errorf("package cli has no variable Version: %v", err)
	}
}
