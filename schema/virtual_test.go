package schema

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

// virtual marks a process that runs the bubble of one test only.
const virtual = "SCHEMA_TEST_VIRTUAL"

// virtually runs f in a bubble, where only waiting takes time, in a process of
// its own: gocql keeps wait groups that a second bubble must not use.
func virtually(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Getenv(virtual) != "" {
		synctest.Test(t, f)
		return
	}
	t.Parallel()
	var name []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		name = append(name, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+strings.Join(name, "/"), "-test.v")
	cmd.Env = append(os.Environ(), virtual+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
}
