package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// modules are the folders of the modules whose code is mutated, where they exist.
var modules = []string{".", "outbox", "devkit"}

// excluded matches the folders whose code is not the product's: tests, their tools and
// examples.
var excluded = regexp.MustCompile(`^(test|examples|tools|devkit/(bench|chaos|cmd|processes|testkit))(/|$)|/(relaytest|outboxtest|storetest)(/|$)`)

// goPackage is a package with its mutants.
type goPackage struct {
	dir     string // relative to the root of the repository
	module  string // folder of its module, relative too
	path    string
	mutants []*mutant
	// sources are the texts of the mutated files, by path.
	sources map[string][]byte
	// name is that of the package clause.
	name string
}

// listedPackage is a package as `go list -json` prints it.
type listedPackage struct {
	ImportPath, Dir, Name, Export string
	GoFiles, CgoFiles             []string
	DepOnly                       bool
}

// loadPackages returns the packages that match patterns, all if there are none, with their
// mutants. With a commit it returns only the mutants of lines that changed since.
func loadPackages(ctx context.Context, patterns []string, since string) ([]*goPackage, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var changed map[string][]lines
	if since != "" {
		if changed, err = changedLines(ctx, since); err != nil {
			return nil, err
		}
	}
	var out []*goPackage
	for _, module := range modules {
		inside := patternsInside(module, patterns)
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err != nil || len(inside) == 0 {
			continue
		}
		loaded, err := loadModule(ctx, root, module, inside, changed)
		if err != nil {
			return nil, err
		}
		out = append(out, loaded...)
	}
	if len(out) == 0 && since == "" {
		return nil, fmt.Errorf("no package matches %q", patterns)
	}
	return out, nil
}

// patternsInside returns the patterns of a module's packages, relative to its folder.
func patternsInside(module string, patterns []string) (out []string) {
	if len(patterns) == 0 {
		return []string{"./..."}
	}
	for _, pattern := range patterns {
		pattern = path.Clean(filepath.ToSlash(pattern))
		owner := "."
		for _, m := range modules[1:] {
			if pattern == m || strings.HasPrefix(pattern, m+"/") {
				owner = m
			}
		}
		if owner == module {
			if module != "." {
				pattern = cmp.Or(strings.TrimPrefix(strings.TrimPrefix(pattern, module), "/"), ".")
			}
			out = append(out, "./"+pattern)
		}
	}
	return out
}

// listPackages returns the packages that match patterns, and an importer of all that they
// import.
func listPackages(ctx context.Context, fset *token.FileSet, module string, patterns []string) (listed []listedPackage, imports types.Importer, err error) {
	text, err := goCommand(ctx, module, append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Name,Export,GoFiles,CgoFiles,DepOnly"}, patterns...)...)
	if err != nil {
		return nil, nil, err
	}
	exports := make(map[string]string)
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && len(p.CgoFiles) == 0 {
			listed = append(listed, p)
		}
	}
	return listed, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }), nil
}

func loadModule(ctx context.Context, root, module string, patterns []string, changed map[string][]lines) ([]*goPackage, error) {
	fset := token.NewFileSet()
	listed, imports, err := listPackages(ctx, fset, module, patterns)
	if err != nil {
		return nil, err
	}
	var out []*goPackage
	for _, l := range listed {
		dir, err := filepath.Rel(root, l.Dir)
		if err != nil {
			return nil, err
		}
		dir = filepath.ToSlash(dir)
		if excluded.MatchString(dir) {
			continue
		}
		p := &goPackage{dir: dir, module: module, path: l.ImportPath, name: l.Name, sources: make(map[string][]byte)}
		touched := changed == nil
		var files []*ast.File
		for _, name := range l.GoFiles {
			file := path.Join(dir, name)
			source, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			f, err := parser.ParseFile(fset, file, source, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			p.sources[file] = source
			files = append(files, f)
			touched = touched || changed[file] != nil
		}
		if !touched {
			continue
		}
		info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Selections: make(map[*ast.SelectorExpr]*types.Selection)}
		config := types.Config{Importer: imports}
		if _, err := config.Check(l.ImportPath, fset, files, info); err != nil {
			return nil, fmt.Errorf("check %s: %w", dir, err)
		}
		for i, f := range files {
			if ast.IsGenerated(f) {
				continue
			}
			file := fset.Position(f.FileStart).Filename
			found := findMutants(fset, files[i], p.sources[file], info)
			if changed != nil {
				found = slices.DeleteFunc(found, func(m *mutant) bool {
					return !slices.ContainsFunc(changed[file], func(l lines) bool { return l.first <= m.line && m.line <= l.last })
				})
			}
			p.mutants = append(p.mutants, found...)
		}
		number(p)
		out = append(out, p)
	}
	return out, nil
}

// number gives the mutants of a package their owner, and those of one name an ordinal.
func number(p *goPackage) {
	times := make(map[string]int)
	for _, m := range p.mutants {
		m.in = p
		name := m.name()
		times[name]++
		m.ordinal = times[name]
	}
}

// draw returns n of the mutants, and all if n is 0. The order, and so the choice, depends only
// on the seed and on each mutant's name: a change elsewhere draws the same ones.
func draw(from []*mutant, n int, seed uint64) []*mutant {
	rank := make(map[*mutant]uint64, len(from))
	for _, m := range from {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s %d", m.name(), seed)
		rank[m] = h.Sum64() * 0x9e3779b97f4a7c15
	}
	if n > 0 && n < len(from) {
		slices.SortFunc(from, func(a, b *mutant) int { return cmp.Compare(rank[a], rank[b]) })
		from = from[:n]
	}
	return from
}

// lines are lines of a file, both ends included.
type lines struct{ first, last int }

var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// changedLines returns the lines of Go files that changed since a commit, by file. Files that
// git does not know yet are missing.
func changedLines(ctx context.Context, since string) (map[string][]lines, error) {
	diff := exec.CommandContext(ctx, "git", "diff", "--unified=0", "--no-color", "--no-ext-diff", since, "--", "*.go")
	diff.Stderr = os.Stderr
	text, err := diff.Output()
	if err != nil {
		return nil, fmt.Errorf("git diff %s: %w", since, err)
	}
	return parseDiff(text), nil
}

func parseDiff(diff []byte) map[string][]lines {
	out := make(map[string][]lines)
	var file string
	for line := range strings.Lines(string(diff)) {
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok {
			file = strings.TrimSpace(name)
		}
		if m := hunk.FindStringSubmatch(line); m != nil {
			first, _ := strconv.Atoi(m[1]) // digits
			count := 1
			if m[2] != "" {
				count, _ = strconv.Atoi(m[2])
			}
			if count > 0 {
				out[file] = append(out[file], lines{first, first + count - 1})
			}
		}
	}
	return out
}

// goCommand runs the go command in a folder and returns what it prints.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s in %s: %w\n%s", args[0], dir, err, complaint.Bytes())
	}
	return out, nil
}
