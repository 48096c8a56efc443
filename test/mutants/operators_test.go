package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// mutantsIn returns the mutants of the functions of a file.
func mutantsIn(t *testing.T, source string, fset *token.FileSet, imports types.Importer) []*mutant {
	t.Helper()
	f, err := parser.ParseFile(fset, "p.go", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: imports}
	if _, err := config.Check("p", fset, []*ast.File{f}, info); err != nil {
		t.Fatal(err)
	}
	p := &goPackage{dir: "p", name: "p", mutants: findMutants(fset, f, []byte(source), info)}
	number(p)
	return p.mutants
}

func TestFindMutants_Operators(t *testing.T) {
	t.Parallel()
	const declarations = `package p
import ("cmp"; "context"; "errors"; "log/slog"; "sync"; "time")
type flag bool
type thing struct { n int; wait time.Duration; on flag; name string; any any }
var (
	_ = cmp.Compare[int]; _ = context.Background; _ = errors.New; _ = slog.Info; _ time.Duration
	mu sync.Mutex; global int; values []int; channel = make(chan int, 1); always = 1 < 2
)
func do() error { return nil }
func two() (int, error) { return 1, nil }
func three() int { return 3 }
`
	fset := token.NewFileSet()
	_, imports, err := listPackages(t.Context(), fset, ".", []string{"cmp", "context", "errors", "log/slog", "sync", "time"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		body string
		want []string
	}{
		{"func f(a, b int) { if a < b { do() } }", []string{"never: a < b", "always: a < b", "boundary: a < b", "remove: do()"}},
		{"func f() error { if err := do(); err != nil { return err }; return nil }", []string{"never: err != nil", "succeed: return err"}},
		{"func f() (int, error) { return two() }", []string{"succeed: return two()"}},
		{"func f(a, b bool) bool { return a || b }", []string{"flip: a || b", "never: a", "never: b"}},
		{"func f(a flag) flag { return a && true }", nil},
		{"func f() bool { return true }", []string{"flip: true"}},
		{"func f(n int) { switch { case n > 1: global = 2; case n == 0: panic(n) }; switch n { case 1: } }", []string{"never: n > 1", "always: n > 1", "boundary: n > 1", "remove: global = 2", "never: n == 0", "always: n == 0"}},
		{"func f() { for _, v := range values { if v > 1 { continue }; global++ } }", []string{"skip: for _, v := range values", "never: v > 1", "always: v > 1", "boundary: v > 1", "remove: continue", "remove: global++"}},
		{"func f() { for i := 0; i < 2; i++ { global += i } }", []string{"never: i < 2", "boundary: i < 2", "remove: global += i"}},
		{"func f() { mu.Lock(); defer mu.Unlock(); defer do(); go do(); channel <- 1; _ = global; _ = do(); slog.Info(\"a\") }", []string{"remove: defer do()", "remove: go do()", "remove: channel <- 1", "remove: _ = do()"}},
		{"func f(n int) { if n == 1 { return }; do() }", []string{"never: n == 1", "always: n == 1", "remove: return", "remove: do()"}},
		{"func f(d time.Duration, t time.Time) time.Time { return t.Add(-d) }", []string{"present: t.Add(-d)", "negative: -d"}},
		{"func f(a, b int) int { return min(a, 1) + b }", []string{"negative: min(a, 1) + b", "extreme: min(a, 1)"}},
		{"func f(a int) int { return len(append(values, three())) + (a + 1) }", []string{"negative: a + 1"}},
		{"func f(a byte) byte { return a & (1 << a - 1) }", nil},
		{"func f(a string) string { return a + a }", nil},
		{"func f() int { const n = 1 - 2; return n + 1 }", nil},
		{"func f(n int) *thing { return &thing{n: n, wait: 5, on: true, name: \"a\", any: nil} }", []string{"zero: n: n", "zero: name: \"a\""}},
		{"func f(a, b int) int { return cmp.Compare(a, b) }", []string{"reverse: cmp.Compare(a, b)"}},
		{"func f(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }", []string{"cancel: context.WithoutCancel(ctx)"}},
		{"func f() { select { case <-channel: do(); case channel <- 1: } }", []string{"remove: do()"}},
		{"func f() { do(); do() }", []string{"remove: do()", "remove: do() #2"}},
		{"func f() { fn := func() error { return do() }; _ = fn }", []string{"succeed: return do()"}},
	} {
		var got []string
		source := declarations + tt.body
		for _, m := range mutantsIn(t, source, fset, imports) {
			if name, ok := strings.CutPrefix(m.name(), "p f "); ok {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s\ngot  %q\nwant %q", tt.body, got, tt.want)
		}
	}
}

// Nested changes do not mix, and line numbers stay.
func TestInstrument_OnlyInserts(t *testing.T) {
	t.Parallel()
	const source = `package p

func f(a, b int) (n int) {
	if a < b && // a comment
		b > 1 {
		n = a - b
	}
	return n
}
`
	found := mutantsIn(t, source, token.NewFileSet(), nil)
	for i, m := range found {
		m.id = i + 1
	}
	text := string(instrument([]byte(source), found))
	if _, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for i, line := range strings.Split(source, "\n") {
		if line = strings.TrimSpace(line); line == "return n" && strings.TrimSpace(strings.Split(text, "\n")[i]) != line {
			t.Errorf("line %d of\n%s\nis not %q", i+1, text, line)
		}
	}
	for id := range len(found) {
		if n := strings.Count(text, fillNumber("(%d", id+1)); n == 0 {
			t.Errorf("mutant %s is not in\n%s", found[id].name(), text)
		}
	}
}
