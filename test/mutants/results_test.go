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
	for key, v := range map[string]verdict{"a": noticed, "b": survived, "c": broken, "d": hung} {
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
		if got := second.noticed(key); got != want {
			t.Errorf("noticed(%q) = %v, want %v", key, got, want)
		}
	}
	// A mutant that was detected once and then survives is run again.
	if err := second.add(result{Key: "a", Verdict: survived}); err != nil {
		t.Fatal(err)
	}
	third, err := openResults(name)
	if err != nil {
		t.Fatal(err)
	}
	defer third.close()
	if second.noticed("a") || third.noticed("a") {
		t.Error("noticed(a) = true after it survived")
	}
}

// A mutant is another one as soon as its file, its package or its test is.
func TestMutant_KeyFollowsTheCode(t *testing.T) {
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
	write("code/a.go", "package code // old\n")
	write("code/b.go", "package code\n")
	write("tests/a_test.go", "package tests\n")
	write("other/a.go", "package other\n")
	m := mutant{name: "m", file: "code/a.go", old: "old", new: "new", pkg: "./tests", run: "."}
	key := func(m mutant) string {
		t.Helper()
		k, err := m.key(dir)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	was := key(m)
	write("other/a.go", "package other // it changed\n")
	renamed := m
	renamed.name = "another name"
	if got := key(renamed); got != was {
		t.Errorf("key = %q, want %q: nothing of it changed", got, was)
	}
	for _, change := range []func(){
		func() { write("code/b.go", "package code // it changed\n") },
		func() { write("tests/a_test.go", "package tests // it changed\n") },
		func() { write("tests/b_test.go", "package tests\n") },
		func() { m.run = "Other" },
		func() { m.new = "newer" },
	} {
		change()
		if got := key(m); got == was {
			t.Errorf("key = %q, as before", got)
		} else {
			was = got
		}
	}
}
