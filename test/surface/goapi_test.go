package surface

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// forRelays are the packages of what only programs like the relay, and tests of services, need.
var forRelays = []string{"outbox/rows", "outbox/hint/datagram", "devkit/testkit", "devkit/processes"}

// TestSurface_Go compares the exported declarations of the modules that users import.
// goapi.txt is promised; what goapi-relays.txt has may change in a minor version.
func TestSurface_Go(t *testing.T) {
	t.Parallel()
	var promised, relays strings.Builder
	packages := 0
	add := func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if d.Name() == "internal" || d.Name() == "testdata" {
			return filepath.SkipDir
		}
		name, to := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator))), &promised
		if slices.Contains(forRelays, name) {
			to = &relays
		} else if strings.HasPrefix(name, "devkit") {
			return nil
		}
		list, err := declarations(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "package %s\n\n%s\n\n", name, strings.Join(list, "\n"))
		packages++
		return nil
	}
	for _, module := range []string{"devkit", "outbox"} {
		if err := filepath.WalkDir(filepath.Join(root, module), add); err != nil {
			t.Fatal(err)
		}
	}
	if packages < 5 {
		t.Errorf("found %d packages", packages)
	}
	compare(t, "goapi.txt", promised.String())
	compare(t, "goapi-relays.txt", relays.String())
}

// declarations returns the exported declarations of a package without comments, sorted.
func declarations(dir string) (list []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.IsDir() || filepath.Ext(entry.Name()) != ".go" || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(dir, entry.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.FileExports(f)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && !ast.IsExported(receiver(d)) {
					continue
				}
				d.Doc, d.Body = nil, nil
				list = append(list, source(fset, d))
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						s.Doc, s.Comment = nil, nil
					case *ast.ValueSpec:
						s.Doc, s.Comment = nil, nil
					default:
						continue // an import
					}
					ast.Inspect(s, func(n ast.Node) bool {
						if field, ok := n.(*ast.Field); ok {
							field.Doc, field.Comment = nil, nil
						}
						return true
					})
					list = append(list, d.Tok.String()+" "+source(fset, s))
				}
			}
		}
	}
	slices.Sort(list)
	return list, nil
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	name, _ := t.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}

// source returns a declaration as Go source, without blank lines.
func source(fset *token.FileSet, n any) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, fset, n); err != nil {
		panic(err)
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(lines, "\n")
}
