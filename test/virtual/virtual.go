// Package virtual runs tests in virtual time, each in a process of its own.
package virtual

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

// alone marks a process that runs the bubble of one test only.
const alone = "TEST_ALONE"

// Run runs f in a bubble, where only waiting takes time, in a process of its own, beside parallel
// tests: gocql keeps wait groups and channels that a second bubble must not use. The test, or
// subtest, does nothing else.
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Getenv(alone) != "" {
		synctest.Test(t, f)
		return
	}
	t.Parallel()
	var name []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		name = append(name, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+strings.Join(name, "/"), "-test.v")
	cmd.Env = append(os.Environ(), alone+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
}
