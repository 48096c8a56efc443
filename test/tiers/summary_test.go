package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// broken is a module in which everything fails that can, by file.
var broken = map[string]string{
	"go.mod":  "module example.com/broken\n\ngo 1.26\n",
	"good.go": "package broken\n",
	"good_test.go": `package broken
import "testing"
func TestGood(t *testing.T) { t.Log("nobody needs this") }
`,
	"messages/messages_test.go": `package messages
import "testing"
func TestOuter(t *testing.T) {
	t.Run("good", func(t *testing.T) { t.Parallel() })
	t.Run("bad", func(t *testing.T) {
		t.Parallel()
		t.Log("it begins")
		t.Errorf("got %d, want %d", 1, 2)
	})
}
func TestOther(t *testing.T) { t.Fatal("the end of it") }
`,
	"panics/panics_test.go": `package panics
import "testing"
func TestPanics(t *testing.T) { panic("in the night") }
`,
	"hangs/hangs_test.go": `package hangs
import ("testing"; "time")
func TestHangs(t *testing.T) { t.Run("for ever", func(t *testing.T) { time.Sleep(time.Hour) }) }
`,
	"exits/exits_test.go": `package exits
import ("fmt"; "os"; "testing")
func TestMain(m *testing.M) { fmt.Println("no database here"); os.Exit(3) }
`,
	"builds/builds_test.go": `package builds
import "testing"
func TestNot(t *testing.T) { nothing() }
`,
	"flaky/flaky_test.go": `package flaky
import ("os"; "testing")
func TestFlaky(t *testing.T) {
	if os.Mkdir("ran", 0o700) == nil { t.Error("too late") }
}
`,
	"once/once_test.go": `package once
import ("os"; "testing")
func TestMain(m *testing.M) {
	if os.Mkdir("ran", 0o700) == nil { os.Exit(3) }
	os.Exit(m.Run())
}
func TestOnce(*testing.T) {}
`,
}

// gotestsum returns a function that runs it in the module as a tier of this name.
func gotestsum(t *testing.T) func(name, packages string, flags ...string) *tier {
	t.Helper()
	dir := t.TempDir()
	for name, text := range broken {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool, err := filepath.Abs("../tool")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(makefile), "\nGOTESTSUM   := ")
	version, _, _ = strings.Cut(version, "\n")
	return func(name, packages string, flags ...string) *tier {
		x := setup(t, "*) cd "+dir+" && GOFLAGS=-mod=mod GOWORK=off "+tool+" "+version+` --format pkgname --hide-summary skipped \
	--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-report="$RERUNS" --packages "`+packages+`" -- -vet=off `+strings.Join(flags, " ")+";;")(name)
		x.run(t.Context(), &strings.Builder{})
		return x
	}
}

// The summary has the name and the message of a Go test for every kind of
// failure.
func TestSummary_OfRealTests(t *testing.T) {
	t.Parallel()
	run := gotestsum(t)
	for packages, want := range map[string][]string{
		"./messages . ": {"messages TestOuter/bad\n", "messages_test.go:8: got 1, want 2\n", "messages TestOther\n", "messages_test.go:11: the end of it\n"},
		"./panics":      {"panics TestPanics\n", "panic: in the night"},
		"./exits":       {"exits\n", "no database here\n"},
		"./builds":      {"builds/builds_test.go:3:30: undefined: nothing\n"},
	} {
		x := run("tests", packages)
		got := strings.Join(summary([]*tier{x}), "\n") + "\n"
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: the summary is\n%s\nwant %q in it", packages, got, w)
			}
		}
		if strings.Contains(got, "nobody needs this") || strings.Contains(got, "TestOuter\n") || x.err == nil {
			t.Errorf("%s: error %v, and the summary is\n%s\nwant failures alone", packages, x.err, got)
		}
	}
	// A hanging test must start within its limit.
	for limit, got := 3*time.Second, ""; !strings.Contains(got, "TestHangs/for_ever"); limit *= 2 {
		got = strings.Join(summary([]*tier{run("hangs", "./hangs", "-timeout", limit.String())}), "\n")
		if limit > time.Hour || !strings.Contains(got, "panic: test timed out after "+limit.String()) {
			t.Fatalf("the summary is\n%s\nwant the timeout", got)
		}
	}
}

// A tier whose failed test passed when repeated succeeds, and the test is
// reported. It fails if a failure cannot be repeated: a package without a
// failed test runs no test again.
func TestTier_ThatRanAgain(t *testing.T) {
	t.Parallel()
	run := gotestsum(t)
	if x := run("tests", "./flaky"); x.err != nil || len(x.flaky) != 1 || x.flaky[0] != "FLAKY: tests: example.com/broken/flaky.TestFlaky (2 runs, 1 failures)" {
		t.Errorf("error = %v, flaky = %q, want one test", x.err, x.flaky)
	}
	if x := run("tests", "./once"); x.err == nil || len(x.flaky) != 0 {
		t.Errorf("error = %v, flaky = %q, want the failure of a package", x.err, x.flaky)
	}
	if x := run("tests", "./messages"); x.err == nil || len(x.flaky) != 0 {
		t.Errorf("error = %v, flaky = %q, want the failures of both runs", x.err, x.flaky)
	}
}

// race is a report of the detector.
const raceReport = `==================
WARNING: DATA RACE
Read at 0x00c0001f4980 by goroutine 1702:
  github.com/twmb/franz-go/pkg/kgo.DefaultCompressor()
      /go/pkg/mod/github.com/twmb/franz-go/pkg/kgo/compression.go:162 +0x16a
  github.com/scylla-outbox/scylla-outbox/relay.(*publisher).newClient()
      /src/relay/publisher.go:166 +0xf38
  testing.tRunner()
      /usr/local/go/src/testing/testing.go:2036 +0x21c

Previous write at 0x00c0001f4980 by goroutine 1600:
  github.com/twmb/franz-go/pkg/kgo.DefaultCompressor()
      /go/pkg/mod/github.com/twmb/franz-go/pkg/kgo/compression.go:167 +0x23c
  github.com/scylla-outbox/scylla-outbox/relay.(*fixture).consume()
      /src/relay/fixture_test.go:142 +0x567

Goroutine 1702 (running) created at:
  testing/synctest.testingSynctestTest()
      /usr/local/go/src/testing/testing.go:2150 +0x5fc
==================
`

const raceLine = "DATA RACE: read compression.go:162 publisher.go:166; previous write compression.go:167 fixture_test.go:142"

// One race fails every running test. The summary has the race and its first
// position.
func TestSummary_OfARace(t *testing.T) {
	t.Parallel()
	const ran = "    testing.go:1712: race detected during execution of test\n"
	log := "✖  relay (4.1s)\n\n=== Failed\n"
	for i := range 19 {
		log += fmt.Sprintf("=== FAIL: relay TestWaits%d (0.00s)\n%s\n", i, ran)
	}
	log += "=== FAIL: relay TestRaces (0.00s)\n" + raceReport + ran + "\nDONE 20 tests, 20 failures in 4.1s\n"
	x := &tier{name: "race", logs: t.TempDir()}
	if err := os.WriteFile(x.log(), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(x.reasons(6), "\n"), "relay TestRaces\n  "+raceLine; got != want {
		t.Errorf("the summary is\n%s\nwant\n%s", got, want)
	}
}

// A race without a running test, and a crash of the detector, fail a package
// without a failed test. The summary distinguishes them.
func TestSummary_OfTheDetectorAlone(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"testing: race detected outside of test execution\n":                   raceLine,
		"ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 \"((thr)) != (0)\"\n": `ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 "((thr)) != (0)"`,
	} {
		x := &tier{name: "race", logs: t.TempDir()}
		log := "=== Failed\n=== FAIL: relay  (0.00s)\n" + said + "FAIL\trelay\t452.081s\n\nDONE 1 tests, 1 failure in 1s\n"
		var events strings.Builder
		for line := range strings.Lines(raceReport) {
			fmt.Fprintf(&events, `{"Action":"output","Package":"relay","Test":"TestEnded","Output":%q}`+"\n", line)
		}
		if err := os.WriteFile(x.log(), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(x.events(), []byte(events.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(x.reasons(2), "\n"); got != "relay\n  "+want {
			t.Errorf("the summary is\n%s\nwant %s", got, want)
		}
	}
}
