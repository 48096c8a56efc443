package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"
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
