package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// setup returns tiers whose targets a shell script executes.
func setup(t *testing.T, script string) func(name string) *tier {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "make")
	text := "#!/usr/bin/env bash\nset -u\ncase $2 in\n" + script + "\nesac\n"
	if err := os.WriteFile(file, []byte(text), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	return func(name string) *tier {
		return &tier{name: name, logs: dir, make: file, limit: 10 * time.Minute}
	}
}

// The end of `make test` has each failed tier, its tests, and their messages;
// the full output is in the log.
func TestSummary_ListsFailures(t *testing.T) {
	t.Parallel()
	target := setup(t, `
good) echo fine;;
tests)
	echo "a long log"
	printf '=== Failed\n=== FAIL: relay TestSweep (0.00s)\n    sweep_test.go:7: got 1, want 2\n\nDONE 1 tests, 1 failure in 0.1s\n'
	exit 1;;
lint)
	echo "relay/a.go:3:1: unused" >&2
	echo "--- FAIL: BenchmarkA"
	for i in $(seq 100); do echo "line $i"; done
	echo "make: *** [Makefile:7: lint] Error 1"
	exit 2;;`)
	var out strings.Builder
	tiers := []*tier{target("good"), target("tests"), target("lint")}
	if done := runAll(t.Context(), tiers, 2, true, &screen{out: &out}); len(done) != 3 {
		t.Fatalf("%d tiers ran, want all 3", len(done))
	}
	got := strings.Join(summary(tiers), "\n")
	want := fmt.Sprintf(`FAILED: tests, lint
tests (exit status 1), all of it in %s
  relay TestSweep
    sweep_test.go:7: got 1, want 2
lint (exit status 2), all of it in %s
  relay/a.go:3:1: unused
  --- FAIL: BenchmarkA
  line 98
  line 99
  line 100`, tiers[1].log(), tiers[2].log())
	if got != want {
		t.Errorf("summary:\n%s\nwant:\n%s", got, want)
	}
	if tiers[0].err != nil {
		t.Errorf("a good tier: error = %v, want nil", tiers[0].err)
	}
	log, err := os.ReadFile(tiers[2].log())
	if err != nil {
		t.Fatal(err)
	}
	if logged, shown := strings.Count(string(log), "\n"), strings.Count(out.String(), "\nlint: "); logged != 103 || shown < 102 {
		t.Errorf("%d lines are logged and %d shown, want all 103", logged, shown)
	}
}

// After a failure no more begins, unless all are to run.
func TestRunAll_EndsAtAFailure(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		target := setup(t, `bad) exit 1;; *) ;;`)
		tiers := []*tier{target("good"), target("bad"), target("other"), target("last")}
		done := runAll(t.Context(), tiers, 1, all, &screen{out: &strings.Builder{}})
		if want := map[bool]int{false: 2, true: 4}[all]; len(done) != want {
			t.Errorf("all=%v: %d tiers ran, want %d", all, len(done), want)
		}
	}
}

// Two lanes are two tiers at the same time, and never three.
func TestRunAll_SideBySide(t *testing.T) {
	t.Parallel()
	// The first two wait for each other; the third starts when one of them has
	// ended.
	target := setup(t, `*)
	cd "${0%/*}"
	touch "$2.here"
	if [[ $2 == c ]]; then [[ -e a.done || -e b.done ]]; exit; fi
	for i in $(seq 6000); do [[ -e a.here && -e b.here ]] && break; sleep 0.05; done
	touch "$2.done"
	[[ -e a.here && -e b.here ]];;`)
	tiers := []*tier{target("a"), target("b"), target("c")}
	if lines := summary(runAll(t.Context(), tiers, 2, true, &screen{out: &strings.Builder{}})); len(lines) > 0 {
		t.Errorf("summary:\n%s\nwant that all are well", strings.Join(lines, "\n"))
	}
}

// For any number of failures, the summary fits the end of a log, and the first
// line has all tiers.
func TestSummary_IsShort(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 5, 13} {
		target := setup(t, `*)
	echo "=== Failed"
	for i in $(seq 50); do
		echo "=== FAIL: p Test$i (0.00s)"
		echo "    x_test.go:1: $(printf 'long %.0s' $(seq 100))"
	done
	exit 1;;`)
		var tiers []*tier
		for i := range n {
			x := target(fmt.Sprint("t", i))
			x.run(t.Context(), &strings.Builder{})
			tiers = append(tiers, x)
		}
		lines := summary(tiers)
		if len(lines) > maxLines {
			t.Errorf("%d tiers: %d lines, want at most %d", n, len(lines), maxLines)
		}
		for i := range tiers {
			if !strings.Contains(lines[0], fmt.Sprint("t", i)) {
				t.Errorf("%d tiers: %q does not name t%d", n, lines[0], i)
			}
		}
		if all := strings.Join(lines, "\n"); len(all) > maxBytes {
			t.Errorf("%d tiers: %d bytes, want at most %d", n, len(all), maxBytes)
		}
		if n == 1 && !strings.Contains(strings.Join(lines, "\n"), " more") {
			t.Errorf("summary:\n%s\nwant how many more failed", strings.Join(lines, "\n"))
		}
	}
}

// A tier that hangs ends with all its processes, and the summary reports it.
func TestTier_EndsAtItsLimit(t *testing.T) {
	t.Parallel()
	x := setup(t, `*) echo begun; sleep 3600 & echo $! >"${0%/*}/pid"; wait;;`)("hangs")
	var pid []byte
	for x.limit = 250 * time.Millisecond; pid == nil; x.limit *= 2 { // it has to begin within it
		x.run(t.Context(), &strings.Builder{})
		pid, _ = os.ReadFile(filepath.Join(x.logs, "pid"))
	}
	if x.err != errTooLong { //nolint:errorlint // it is the error itself
		t.Errorf("error = %v, want %v", x.err, errTooLong)
	}
	for i := 0; ; i++ {
		if stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat"); err != nil || strings.Contains(string(stat), ") Z ") {
			break
		}
		if i == 12_000 {
			t.Fatal("a process of it is still there after a minute")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got := strings.Join(summary([]*tier{x}), "\n"); !strings.Contains(got, "hangs (took too long)") || !strings.Contains(got, "begun") {
		t.Errorf("summary:\n%s\nwant that it took too long, and its output", got)
	}
}

// After an interrupt the run does not wait.
func TestTier_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	x := setup(t, `*) sleep 3600;;`)("stopped")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	x.run(ctx, &strings.Builder{})
	if x.err == nil {
		t.Error("error = nil, want one")
	}
}

// The files of an earlier run do not count.
func TestTier_ForgetsTheRunBefore(t *testing.T) {
	t.Parallel()
	x := setup(t, `*) echo "no compiler" >&2;;`)("again")
	for _, file := range []string{x.events(), x.report()} {
		if err := os.WriteFile(file, []byte("p.TestOld: 2 runs, 1 failures\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x.run(t.Context(), &strings.Builder{})
	if _, err := os.Stat(x.events()); err == nil || x.err != nil || len(x.flaky) > 0 {
		t.Errorf("error = %v, flaky = %q, want none of the run before", x.err, x.flaky)
	}
}
