package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A run resumes an interrupted one.
func TestResults_Resume(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "bin", "mutants.jsonl")
	first, err := openResults(name)
	if err != nil {
		t.Fatal(err)
	}
	for key, v := range map[string]verdict{"a": noticed, "b": survived, "c": unreached, "d": hung} {
		if err := first.add(result{Name: "the " + key, Key: key, Verdict: v}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := first.file.WriteString(`{"name":"the e","key":"e","verd`); err != nil {
		t.Fatal(err)
	}
	first.close()
	second, err := openResults(name)
	if err != nil {
		t.Fatal(err)
	}
	defer second.close()
	for key, want := range map[string]bool{"a": true, "b": false, "c": false, "d": false, "e": false} {
		if got := second.last[key] == noticed; got != want {
			t.Errorf("%q is noticed = %v, want %v", key, got, want)
		}
	}
	// The last result counts.
	if err := second.add(result{Key: "a", Verdict: survived}); err != nil {
		t.Fatal(err)
	}
	third, err := openResults(name)
	if err != nil {
		t.Fatal(err)
	}
	defer third.close()
	if second.last["a"] != survived || third.last["a"] != survived {
		t.Error("a is noticed after it survived")
	}
}

// A mutant is another one as soon as its package or a package of its tests changes.
func TestKeys_FollowTheCode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("relay/internal/a/a.go", "package a\n")
	write("relay/a_test.go", "package relay\n")
	write("orders/a.go", "package orders\n")
	m := &mutant{in: &goPackage{dir: "relay/internal/a"}, fn: "f", op: never, text: "x", line: 3}
	key := func(near bool) string {
		t.Helper()
		k, err := newKeys(dir, near).of(m)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	was, wasNear := key(false), key(true)
	write("orders/a.go", "package orders // it changed\n")
	m.line = 4
	if key(false) != was || key(true) != wasNear || was == wasNear {
		t.Errorf("keys are %s and %s, want %s and %s", key(false), key(true), was, wasNear)
	}
	write("relay/a_test.go", "package relay // it changed\n")
	if key(false) == was || key(true) != wasNear {
		t.Errorf("keys are %s and %s, want another one and %s", key(false), key(true), wasNear)
	}
	write("relay/internal/a/b_test.go", "package a\n")
	if key(true) == wasNear {
		t.Errorf("key = %s, as before", key(true))
	}
}
