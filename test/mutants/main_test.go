package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeModule makes a module with these files the working directory.
func writeModule(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	files["go.mod"] = "module example\n\ngo 1.24\n"
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A test detects a mutant, also in a program that it builds. What no test executes or notices
// is reported, and a second run repeats nothing.
func TestRun_ReportsSurvivors(t *testing.T) {
	writeModule(t, map[string]string{
		"sum/sum.go": `package sum

import "os"

func Positive(n int) bool { return n > 0 }

func Unused(n int) bool { return n == 0 }

func Write() { os.Stdout.WriteString("right\n") }
`,
		"sum/sum_test.go": `package sum

import (
	"os/exec"
	"testing"
)

func TestPositive(t *testing.T) {
	if !Positive(2) || Positive(-2) {
		t.Fatal("wrong sign")
	}
}

func TestProgram(t *testing.T) {
	if out, err := exec.Command("go", "run", "example/program").CombinedOutput(); string(out) != "right\n" {
		t.Fatalf("%q, %v", out, err)
	}
}
`,
		"program/main.go": "package main\n\nimport \"example/sum\"\n\nfunc main() { sum.Write() }\n",
	})
	want := []string{
		"SURVIVED  sum/sum.go:5  sum Positive boundary: n > 0",
		"UNREACHED sum/sum.go:7  sum Unused flip: n == 0",
		"4 of 4 mutants ran (0 had a result), 2 detected (50.0 %), 1 survived, 1 reached by no test",
	}
	check := func(want []string, args ...string) {
		t.Helper()
		var out strings.Builder
		err := run(t.Context(), args, &out)
		for _, line := range want {
			if !strings.Contains(out.String(), line) {
				t.Errorf("run(%q) = %v, wrote\n%swant %q", args, err, out.String(), line)
			}
		}
		if failed := err != nil; failed == slices.Contains(args, "50") {
			t.Errorf("run(%q) = %v", args, err)
		}
	}
	check(want, "./sum")
	check([]string{"(4 had a result), 2 detected"}, "-detect", "50", "./sum")
	if err := os.MkdirAll("test/mutants", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("test/mutants/accepted.txt", []byte("# 0 is no case\nsum Positive boundary: n > 0\nsum Positive remove: gone()\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check([]string{"accepted.txt names no mutant: sum Positive remove: gone()\n", "3 of 4 mutants ran (3 had a result)"}, "-detect", "50", "./sum")
}

// The same seed draws the same mutants, also after changes elsewhere.
func TestDraw_DependsOnNames(t *testing.T) {
	t.Parallel()
	p := &goPackage{dir: "p"}
	var from []*mutant
	for _, fn := range strings.Fields("a b c d e f g h i j k l m n o p") {
		from = append(from, &mutant{in: p, fn: fn, op: never, text: "x", ordinal: 1})
	}
	names := func(from []*mutant) (out []string) {
		for _, m := range from {
			out = append(out, m.name())
		}
		slices.Sort(out)
		return out
	}
	first := names(draw(slices.Clone(from), 4, 1))
	fewer := slices.DeleteFunc(slices.Clone(from), func(m *mutant) bool { return !slices.Contains(first, m.name()) && m.fn < "h" })
	if again := names(draw(fewer, 4, 1)); len(first) != 4 || !slices.Equal(first, again) {
		t.Errorf("draw = %q, then %q, want the same 4", first, again)
	}
	if other := names(draw(slices.Clone(from), 4, 2)); slices.Equal(first, other) {
		t.Errorf("draw = %q with seeds 1 and 2", first)
	}
	if all := draw(slices.Clone(from), 0, 1); len(all) != len(from) {
		t.Errorf("draw(0) = %d mutants, want all", len(all))
	}
}

func TestParseDiff(t *testing.T) {
	t.Parallel()
	got := parseDiff([]byte(`diff --git a/p/a.go b/p/a.go
--- a/p/a.go
+++ b/p/a.go
@@ -3 +3,2 @@ func f() {
-a
+b
+c
@@ -9,2 +10,0 @@
-d
-e
@@ -20,0 +20 @@
+f
--- a/p/gone.go
+++ /dev/null
@@ -1 +0,0 @@
-g
`))
	if want := []lines{{3, 4}, {20, 20}}; len(got) != 1 || !slices.Equal(got["p/a.go"], want) {
		t.Errorf("parseDiff() = %v, want p/a.go %v", got, want)
	}
}

func TestPatternsInside_Modules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		module, pattern string
		want            []string
	}{
		{".", "./relay/...", []string{"./relay/..."}},
		{".", "devkit/scyllafake", nil},
		{"devkit", "devkit/scyllafake", []string{"./scyllafake"}},
		{"outbox", "./outbox", []string{"./."}},
		{"outbox", "./outboxes", nil},
	} {
		if got := patternsInside(tt.module, []string{tt.pattern}); !slices.Equal(got, tt.want) {
			t.Errorf("patternsInside(%s, %s) = %q, want %q", tt.module, tt.pattern, got, tt.want)
		}
	}
}
