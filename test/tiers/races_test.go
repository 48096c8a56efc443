package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// One race fails every running test. The summary has the race and its first
// position; bystanders are last.
func TestFailures_OfARace(t *testing.T) {
	t.Parallel()
	const report = `==================
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
  github.com/scylla-outbox/scylla-outbox/relay.(*bundle).consume()
      /src/relay/bundle_test.go:142 +0x567

Goroutine 1702 (running) created at:
  testing/synctest.testingSynctestTest()
      /usr/local/go/src/testing/testing.go:2150 +0x5fc
==================
    testing.go:1712: race detected during execution of test
`
	var events strings.Builder
	say := func(test, output string) {
		for line := range strings.Lines(output) {
			fmt.Fprintf(&events, `{"Action":"output","Package":"p","Test":%q,"Output":%q}`+"\n", test, line)
		}
		fmt.Fprintf(&events, `{"Action":"fail","Package":"p","Test":%q}`+"\n", test)
	}
	for i := range 19 {
		say(fmt.Sprint("TestWaits", i), "    testing.go:1712: race detected during execution of test\n")
	}
	say("TestRaces", report)
	got, _, err := readFailures(strings.NewReader(events.String()))
	if err != nil || len(got) != 20 {
		t.Fatalf("readFailures = %d failures, %v, want 20", len(got), err)
	}
	want := `TestRaces
  DATA RACE: read compression.go:162 publisher.go:166; previous write compression.go:167 bundle_test.go:142
TestWaits0
  testing.go:1712: race detected during execution of test
and 18 more`
	if have := strings.Join(listed(got, 6), "\n"); strings.ReplaceAll(have, "p ", "") != want {
		t.Errorf("listed:\n%s\nwant:\n%s", have, want)
	}
}

// A race without a running test, and a crash of the detector, fail a package
// without a failed test. The summary distinguishes them.
func TestFailures_OfTheDetectorAlone(t *testing.T) {
	t.Parallel()
	for want, events := range map[string][]event{
		"DATA RACE: write a.go:1; previous read b.go:2": {
			{Action: "run", Test: "TestEnded"},
			{Action: "output", Test: "TestEnded", Output: "==================\n"},
			{Action: "output", Test: "TestEnded", Output: "WARNING: DATA RACE\n"},
			{Action: "output", Test: "TestEnded", Output: "Write at 0x00c0001f4980 by goroutine 8:\n"},
			{Action: "output", Test: "TestEnded", Output: "  other.A()\n"},
			{Action: "output", Test: "TestEnded", Output: "      /src/a.go:1 +0x5\n"},
			{Action: "output", Test: "TestEnded", Output: "\n"},
			{Action: "output", Test: "TestEnded", Output: "Previous read at 0x00c0001f4980 by goroutine 9:\n"},
			{Action: "output", Test: "TestEnded", Output: "  other.B()\n"},
			{Action: "output", Test: "TestEnded", Output: "      /src/b.go:2 +0x5\n"},
			{Action: "output", Test: "TestEnded", Output: "==================\n"},
			{Action: "pass", Test: "TestEnded"},
			{Action: "output", Output: "testing: race detected outside of test execution\n"},
			{Action: "output", Output: "FAIL\tp\t452.081s\n"},
			{Action: "fail"},
		},
		`ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 "((thr)) != (0)"`: {
			{Action: "output", Output: "ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 \"((thr)) != (0)\"\n"},
			{Action: "output", Output: "exit status 66\n"},
			{Action: "output", Output: "FAIL\tp\t452.081s\n"},
			{Action: "fail"},
		},
		"exit status 66": {
			{Action: "output", Output: "exit status 66\n"},
			{Action: "output", Output: "FAIL\tp\t452.081s\n"},
			{Action: "fail"},
		},
	} {
		var log strings.Builder
		for _, e := range events {
			e.Package = "p"
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			log.Write(append(line, '\n'))
		}
		got, _, err := readFailures(strings.NewReader(log.String()))
		if err != nil || len(got) != 1 {
			t.Fatalf("readFailures = %+v, %v, want one", got, err)
		}
		if said := strings.Join(listed(got, 2), "\n"); said != "p\n  "+want {
			t.Errorf("the summary is\n%s\nwant %s", said, want)
		}
	}
}
