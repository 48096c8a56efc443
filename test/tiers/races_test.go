package main

import (
	"fmt"
	"strings"
	"testing"
)

// One race fails every test that is under way. The summary has the race and where it
// is first; the tests that only were there come last.
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
