package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

// plainReads are the statements with ORDER BY by file. ScyllaDB fails every read at SERIAL or
// LOCAL_SERIAL against the clustering order of its table, so each of them is executed at the
// consistency of plain reads alone.
var plainReads = map[string]int{
	"orders/store.go":   1, // selectHead, of store.head
	"orders/events.go":  1, // selectEvents, of store.eventsBefore
	"dlq/statements.go": 1, // lookupFirst, of lists.tidy
	"dlq/store_list.go": 1, // of Store.oldestOf
	"outbox/table.go":   1, // byKey, of rows.SelectByKey
}

// TestStatements_OrderedReadsArePlain finds a new statement with ORDER BY. Add it to plainReads
// once it is certain that no caller executes it at a serial consistency.
func TestStatements_OrderedReadsArePlain(t *testing.T) {
	t.Parallel()
	got := map[string]int{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == "test" || rel == "devkit" || rel == ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(strings.ToUpper(lit.Value), "ORDER BY") {
				got[filepath.ToSlash(rel)]++
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, plainReads) {
		t.Errorf("files with ORDER BY: %v, want %v", got, plainReads)
	}
}
