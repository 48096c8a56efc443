package peers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeJava puts a shell script in the place of java.
func fakeJava(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "java"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestJava_ReportsWhyItEnded(t *testing.T) {
	fakeJava(t, "echo no such disk; exit 3")
	s, err := newSetup("kafka", Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = java(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "no such disk") || !strings.Contains(err.Error(), "ended while it started") {
		t.Errorf("java() error = %v, want one with the log", err)
	}
}

func TestJava_StopsWithTheContext(t *testing.T) {
	fakeJava(t, "exec sleep 60")
	s, err := newSetup("kafka", Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = java(ctx, s); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("java() error = %v, want %v", err, context.Canceled)
	}
	if _, err := os.Stat(s.Dir); !os.IsNotExist(err) {
		t.Errorf("temporary directory is left: %v", err)
	}
}

func TestMissing_NamesOldJava(t *testing.T) {
	fakeJava(t, `echo 'openjdk version "11.0.2"' >&2`)
	if got := missing(); len(got) == 0 || !strings.Contains(got[0], "java 17 (this is 11)") {
		t.Errorf("missing() = %q", got)
	}
}
