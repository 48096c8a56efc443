package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// The commands of the tests must not use the installation that the user's environment names.
func TestMain(m *testing.M) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OUTBOX_") {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
	completionTime = time.Minute
	os.Exit(m.Run())
}

// A script distinguishes a wrong command line from a failed command.
func TestRun_WrongCommandLinesExitWith2(t *testing.T) {
	t.Parallel()
	hinted := regexp.MustCompile("hint: (outbox|did you mean)")
	for line, want := range map[string]string{
		"relais":             `unknown command "relais"`,
		"dlq relist":         `unknown command "relist"`,
		"schema migrate now": `unknown command "now"`,
		"events a b":         "accepts at most 1 arg",
		"tail":               "requires at least 1 arg",
		"token":              "accepts 1 arg",
		"dlq jobs get":       "accepts 1 arg",
		"version --loud":     "unknown flag: --loud",
	} {
		var out, errOut strings.Builder
		code := run(strings.Fields(line), &out, &errOut)
		if code != cli.ExitUsage || !strings.Contains(errOut.String(), want) || !hinted.MatchString(errOut.String()) {
			t.Errorf("outbox %s: exit status %d, %q, want %d naming %q, and a hint", line, code, errOut.String(), cli.ExitUsage, want)
		}
	}
}
