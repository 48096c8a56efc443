package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// tree is the repository as its documents speak of it.
type tree struct {
	// pages are the documents and comments the comments of the code, by file.
	pages, comments map[string]string
	// files are all files and folders, as paths below root.
	files []string
	// packages maps the names of packages to their declarations: Func, Type,
	// Type.Method, Type.Field. known contains them without their packages.
	packages map[string]map[string]bool
	known    map[string]bool
}

// TestDocs_NameWhatThereIs finds a document or comment that refers to a missing
// file, folder, declaration, test or make target.
func TestDocs_NameWhatThereIs(t *testing.T) {
	t.Parallel()
	x := readTree(t)
	named := 0
	for file, text := range x.pages {
		for _, span := range codeSpan.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			for _, word := range strings.Fields(span[1]) {
				named += x.check(t, file, strings.Trim(word, ".,;:()'\""))
			}
		}
	}
	for file, text := range x.pages {
		for _, block := range fence.FindAllString(text, -1) {
			for _, word := range fileName.FindAllString(block, -1) {
				named += x.check(t, file, word)
			}
		}
	}
	targets := read(t, filepath.Join(root, "Makefile"))
	for file, text := range x.pages {
		for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).MatchString(targets) {
				t.Errorf("%s names make %s, which is not there", file, m[1])
			}
		}
	}
	for file, text := range x.comments {
		for _, word := range fileName.FindAllString(text, -1) {
			named += x.check(t, file, word)
		}
	}
	if named < 200 {
		t.Errorf("found %d names: the pattern is wrong", named)
	}
}

// TestDocs_LinksLead finds a link to a missing file or heading.
func TestDocs_LinksLead(t *testing.T) {
	t.Parallel()
	x := readTree(t)
	for file, text := range x.pages {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, ":") {
				continue // elsewhere
			}
			target := file
			if to != "" {
				target = path.Join(path.Dir(file), to)
			}
			if !x.exists(target) {
				t.Errorf("%s links to %s, which is not there", file, to)
			}
			if heading != "" && !hasHeading(x.pages[target], heading) {
				t.Errorf("%s links to #%s of %s, which has no such heading", file, heading, target)
			}
		}
	}
}

// TestDocs_FiguresAreMeasured finds a figure of the comparison in the README that the last
// measurement of outbox-dev bench, or, in a cell with ², that of the connector, does not contain.
func TestDocs_FiguresAreMeasured(t *testing.T) {
	t.Parallel()
	x := readTree(t)
	_, measured, _ := strings.Cut(x.pages["docs/performance.md"], "<!-- bench -->")
	measured, _, _ = strings.Cut(measured, "<!-- /bench -->")
	measured = strings.NewReplacer("**", "", ",", "").Replace(measured)
	_, connector, _ := strings.Cut(x.pages["docs/performance.md"], "### The connector\n")
	connector, _, _ = strings.Cut(connector, "\n### ")
	figures := regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)
	known, ofConnector := make(map[string]bool), make(map[string]bool)
	for _, figure := range figures.FindAllString(measured, -1) {
		known[figure] = true
	}
	for _, figure := range figures.FindAllString(strings.ReplaceAll(connector, ",", ""), -1) {
		ofConnector[figure] = true
	}
	found := 0
	for line := range strings.Lines(x.pages["README.md"]) {
		if !strings.HasPrefix(line, "|") || !strings.Contains(line, "¹") && !strings.Contains(line, "²") {
			continue
		}
		for _, cell := range strings.Split(line, "|") {
			measured := known
			if strings.Contains(cell, "²") {
				measured = ofConnector
			}
			for _, figure := range figures.FindAllString(strings.NewReplacer("p50", "", "p99", "").Replace(cell), -1) {
				found++
				if !measured[strings.ReplaceAll(figure, ",", "")] {
					t.Errorf("README.md has the figure %s, which its table in docs/performance.md does not contain, in: %s", figure, line)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("found %d figures with ¹, want the comparison of README.md", found)
	}
}

// TestDocs_Images finds an image that is missing, large, without an alternative text, in no
// document, or not made by a browser test.
func TestDocs_Images(t *testing.T) {
	t.Parallel()
	const folder, most = "docs/images/", 150_000
	x := readTree(t)
	shown := map[string]bool{}
	for file, text := range x.pages {
		for _, m := range image.FindAllStringSubmatch(text, -1) {
			alt, to := m[1], path.Join(path.Dir(file), m[2])
			if strings.Contains(m[2], ":") {
				continue // elsewhere
			}
			if shown[to] = true; !x.exists(to) {
				t.Errorf("%s shows %s, which is not there", file, m[2])
			}
			if len(strings.Fields(alt)) < 3 {
				t.Errorf("%s shows %s with the alternative text %q", file, m[2], alt)
			}
		}
	}
	var shots []*regexp.Regexp
	tests, err := filepath.Glob(filepath.Join(root, "test/browser/*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tests {
		for _, m := range shot.FindAllStringSubmatch(read(t, file), -1) {
			shots = append(shots, regexp.MustCompile("^"+strings.ReplaceAll(regexp.QuoteMeta(m[1]), "%d", `\d+`)+`\.png$`))
		}
	}
	found := 0
	for _, file := range x.files {
		name, ok := strings.CutPrefix(file, folder)
		if !ok {
			continue
		}
		found++
		if !shown[file] {
			t.Errorf("no document shows %s", file)
		}
		if !slices.ContainsFunc(shots, func(r *regexp.Regexp) bool { return r.MatchString(name) }) {
			t.Errorf("no test in test/browser shoots %s", file)
		}
		if n := len(read(t, filepath.Join(root, file))); n > most {
			t.Errorf("%s has %d bytes, want at most %d: shoot a smaller viewport", file, n, most)
		}
	}
	if found < 4 {
		t.Errorf("found %d images: the folder is wrong", found)
	}
}

// TestChangelog_EntriesAreShort finds an entry of more than 25 words.
func TestChangelog_EntriesAreShort(t *testing.T) {
	t.Parallel()
	entries := regexp.MustCompile(`(?m)^- (.*(?:\n  .*)*)`).FindAllStringSubmatch(read(t, filepath.Join(root, "CHANGELOG.md")), -1)
	for _, e := range entries {
		if words := len(strings.Fields(e[1])); words > 25 {
			t.Errorf("an entry has %d words, want at most 25: %s", words, e[1])
		}
	}
	if len(entries) == 0 {
		t.Error("found no entry: the pattern is wrong")
	}
}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	fence    = regexp.MustCompile("(?ms)^```.*?^```")
	image    = regexp.MustCompile(`!\[([^\]]*)\]\(([^)\s]+)\)`)
	shot     = regexp.MustCompile(`\bshoot\((?:fmt\.Sprintf\()?"([^"]+)"`)
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fileName = regexp.MustCompile(`(?:[\w-]+/)*[\w*-]+\.(?:go|md|cql|js)\b`)
	folder   = regexp.MustCompile(`^[\w-]+(?:/[\w-]+)+/?$`)
	symbol   = regexp.MustCompile(`^(?:([a-z]\w*)\.)?([A-Z]\w*(?:\.[A-Z]\w*)?)$`)
	// makeTarget is a target in backticks or in a block.
	makeTarget = regexp.MustCompile("(?m)(?:`|^    )make ([a-z][a-z-]*)")
	testName   = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark|Example)[A-Z_]\w*$`)
)

// check compares a word of a file's text with the tree; it returns 1 if the
// word is a reference.
func (x *tree) check(t *testing.T, file, word string) int {
	t.Helper()
	top, _, _ := strings.Cut(word, "/")
	switch m := symbol.FindStringSubmatch(word); {
	case fileName.FindString(word) == word && word != "":
		if !x.ends(word) && !x.ends(word+".gz") {
			t.Errorf("%s names the file %s, which is not there", file, word)
		}
	case folder.MatchString(word) && x.exists(top):
		if !x.exists(strings.TrimSuffix(word, "/")) {
			t.Errorf("%s names the folder %s, which is not there", file, word)
		}
	case testName.MatchString(word):
		if !x.begins(word) {
			t.Errorf("%s names the test %s, which is not there", file, word)
		}
	case m != nil && m[1] != "" && x.packages[m[1]] != nil:
		if !x.packages[m[1]][m[2]] {
			t.Errorf("%s names %s, which is not there", file, word)
		}
	case m != nil && m[1] == "" && strings.Contains(word, "."):
		if typ, _, _ := strings.Cut(word, "."); x.known[typ] && !x.known[word] {
			t.Errorf("%s names %s, which is not there", file, word)
		}
	default:
		return 0
	}
	return 1
}

func (x *tree) exists(file string) bool {
	for _, f := range x.files {
		if ok, _ := path.Match(file, f); ok {
			return true
		}
	}
	return false
}

// ends reports whether the path of some file has this suffix.
func (x *tree) ends(name string) bool {
	parts := strings.Count(name, "/") + 1
	for _, f := range x.files {
		all := strings.Split(f, "/")
		if ok, _ := path.Match(name, strings.Join(all[max(0, len(all)-parts):], "/")); ok {
			return true
		}
	}
	return false
}

// begins reports whether some declared name has this prefix, for -run.
func (x *tree) begins(name string) bool {
	for k := range x.known {
		if strings.HasPrefix(k, name) {
			return true
		}
	}
	return false
}

func hasHeading(page, anchor string) bool {
	for line := range strings.Lines(page) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || line[0] != '#' {
			continue
		}
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title))
		if slug == anchor {
			return true
		}
	}
	return false
}

// notOurs are folders that hold no text of the project's own.
var notOurs = map[string]bool{".git": true, "bin": true, ".outbox": true, ".peers": true, ".tools": true, ".schemathesis": true}

func readTree(t *testing.T) *tree {
	t.Helper()
	x := &tree{pages: map[string]string{}, comments: map[string]string{}, packages: map[string]map[string]bool{}, known: map[string]bool{}}
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && notOurs[e.Name()] {
			return filepath.SkipDir
		}
		file, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		x.files = append(x.files, file)
		switch path.Ext(file) {
		case ".md":
			if file != "CHANGELOG.md" && !strings.Contains(file, "testdata/") { // history, and files of others
				x.pages[file] = read(t, p)
			}
		case ".go":
			f, err := parser.ParseFile(fset, p, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			x.declare(f)
			var all strings.Builder
			for _, c := range f.Comments {
				all.WriteString(c.Text())
			}
			x.comments[file] = all.String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// declare adds the declarations of a file, with the fields and methods of
// types.
func (x *tree) declare(f *ast.File) {
	in := x.packages[f.Name.Name]
	if in == nil {
		in = map[string]bool{}
		x.packages[f.Name.Name] = in
	}
	add := func(name string) { in[name], x.known[name] = true, true }
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = base(d.Recv.List[0].Type) + "." + name
			}
			add(name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						add(n.Name)
					}
				case *ast.TypeSpec:
					add(s.Name.Name)
					for _, n := range members(s.Type) {
						add(s.Name.Name + "." + n)
					}
				}
			}
		}
	}
}

// base is the name of a method's type.
func base(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return base(e.X)
	case *ast.IndexExpr:
		return base(e.X)
	case *ast.IndexListExpr:
		return base(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// members are the names of a struct's fields, or an interface's methods.
func members(e ast.Expr) (names []string) {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
	}
	return names
}
