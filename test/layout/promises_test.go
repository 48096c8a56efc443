package layout

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// anyVersion is the sentence that the packages of the root module contain about their own API.
const anyVersion = "It is a part of the program, and may change in any version."

// Users import the modules below outbox/. The documentation of other packages that they could
// import states that nothing of them is promised.
func TestPackages_OfTheProgramPromiseNothing(t *testing.T) {
	t.Parallel()
	said, public := make(map[string]bool), make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{"outbox", "devkit", "cmd", "test", "examples", "docs", "deploy", "node_modules"}, rel) || d.Name() == "internal" || d.Name() == "testdata" || len(rel) > 1 && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(rel) != ".go" || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		dir := filepath.Dir(rel)
		public[dir] = true
		said[dir] = said[dir] || strings.Contains(f.Doc.Text(), anyVersion)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir := range public {
		if !said[dir] {
			t.Errorf("the comment of package %s does not say %q, so users may rely on it", dir, anyVersion)
		}
	}
	if len(public) < 15 {
		t.Errorf("found %d packages", len(public))
	}
	if !strings.Contains(read(t, filepath.Join(root, "CONTRIBUTING.md")), "the modules below `outbox/`") {
		t.Error("CONTRIBUTING.md does not say what is promised")
	}
}
