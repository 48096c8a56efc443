package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const root = "../.."

// Every mutant applies, changes the file, and is valid Go.
func TestMutants_Apply(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("there are two mutants %q", m.name)
		}
		names[m.name] = true
		if err := m.locate(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		text, err := m.apply(root)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		before, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(text, before) {
			t.Errorf("%s: changes nothing", m.name)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, text, 0); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// Every mutant selects a test that its package declares.
func TestMutants_SelectTests(t *testing.T) {
	t.Parallel()
	decl := regexp.MustCompile(`(?m)^func (Test\w*)`)
	declared := make(map[string][]string) // by package
	for _, m := range mutants {
		if err := m.locate(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if declared[m.pkg] == nil {
			files, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range files {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				for _, found := range decl.FindAllSubmatch(text, -1) {
					declared[m.pkg] = append(declared[m.pkg], string(found[1]))
				}
			}
		}
		top, _, _ := strings.Cut(m.run, "/") // without the name of a subtest
		if run, err := regexp.Compile(top); err != nil || !slices.ContainsFunc(declared[m.pkg], run.MatchString) {
			t.Errorf("%s: %s declares no test that matches %q, %v", m.name, m.pkg, m.run, err)
		}
	}
}

// A text that does not occur, or occurs twice, is an error.
func TestMutants_MustApplyOnce(t *testing.T) {
	t.Parallel()
	for _, old := range []string{"no line has this", "return"} {
		m := mutant{file: "relay/internal/capture/sweep.go", old: old}
		if _, err := m.apply(root); err == nil {
			t.Errorf("apply(%q) error = nil, want one", old)
		}
	}
}

// The mutant of a program is in the program that its test builds.
func TestMutant_IsInBuiltPrograms(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":          "module example\n\ngo 1.24\n",
		"program/main.go": "package main\n\nfunc main() {\n\tprintln(\"right\")\n}\n",
		"check/check_test.go": `package check

import (
	"os/exec"
	"testing"
)

func TestProgram(t *testing.T) {
	if out, err := exec.Command("go", "run", "example/program").CombinedOutput(); string(out) != "right\n" {
		t.Fatalf("%q, %v", out, err)
	}
}
`,
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := mutant{name: "wrong", file: "program/main.go", old: `"right"`, new: `"wrong"`, pkg: "./check", run: "Program"}
	if v, detail := m.try(t.Context(), time.Minute); v != noticed || !strings.Contains(detail, "wrong") {
		t.Errorf("%v, %s, want the mutant noticed", v, detail)
	}
	m.new = `("right")`
	if v, detail := m.try(t.Context(), time.Minute); v != survived {
		t.Errorf("%v, %s, want the same behaviour to survive", v, detail)
	}
}
