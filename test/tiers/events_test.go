package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
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
}

// The summary has the name and the message of a Go test for every kind of
// failure.
func TestFailures_OfRealTests(t *testing.T) {
	t.Parallel()
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
	test := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-json", "-vet=off"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.Output()
		if err == nil {
			t.Fatalf("go test %q error = nil, want one", args)
		}
		return out
	}
	// A hanging test must start within its limit, and the others must not exceed
	// one.
	var hung []byte
	for limit := 3 * time.Second; !strings.Contains(string(hung), `"Action":"run","Package":"example.com/broken/hangs","Test":"TestHangs/for_ever"`); limit *= 2 {
		hung = test("-timeout="+limit.String(), "./hangs")
	}
	events := append(test("./messages", "./panics", "./exits", "./builds", "."), hung...)
	got, _, err := readFailures(strings.NewReader(string(events)))
	if err != nil {
		t.Fatal(err)
	}
	// Lines of build errors and panics contain paths of this machine.
	want := map[string]string{
		"example.com/broken/messages TestOuter/bad":                   "messages_test.go:7: it begins",
		"example.com/broken/messages TestOther":                       "messages_test.go:11: the end of it",
		"example.com/broken/panics TestPanics":                        "panic: in the night",
		"example.com/broken/hangs TestHangs/for_ever":                 "panic: test timed out after ",
		"example.com/broken/exits ":                                   "no database here",
		"example.com/broken/builds [example.com/broken/builds.test] ": "builds/builds_test.go:3:30: undefined: nothing",
	}
	have := make(map[string]string)
	for _, f := range got {
		have[f.pkg+" "+f.test] = ""
		for _, line := range f.said {
			if strings.HasPrefix(line, want[f.pkg+" "+f.test]) {
				have[f.pkg+" "+f.test] = want[f.pkg+" "+f.test]
			}
		}
	}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("failures:\n%v\nwant:\n%v\nall: %q", have, want, got)
	}
}

// A killed process leaves half a line, and the earlier failures are reported.
func TestFailures_OfHalfAFile(t *testing.T) {
	t.Parallel()
	got, _, err := readFailures(strings.NewReader(`{"Action":"run","Package":"p","Test":"T"}
{"Action":"output","Package":"p","Test":"T","Output":"    x_test.go:3: broken\n"}
{"Action":"fail","Package":"p","Test":"T"}
{"Action":"out`))
	want := []failure{{"p", "T", []string{"x_test.go:3: broken"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("failures = %q, %v, want %q", got, err, want)
	}
}

func TestFailures_WithoutAFile(t *testing.T) {
	t.Parallel()
	if got, flaky, err := failures(filepath.Join(t.TempDir(), "none.json")); got != nil || flaky != nil || err != nil {
		t.Errorf("failures = %v, %v, want none", got, err)
	}
}

// A test that failed and passed when repeated is flaky, although its parents
// and its package ended in the meantime; a test that failed again is not.
func TestFailures_ThatRanAgain(t *testing.T) {
	t.Parallel()
	const first = `{"Action":"run","Package":"p","Test":"T"}
{"Action":"run","Package":"p","Test":"T/a"}
{"Action":"output","Package":"p","Test":"T/a","Output":"    x_test.go:3: a the first time\n"}
{"Action":"fail","Package":"p","Test":"T/a"}
{"Action":"run","Package":"p","Test":"T/b"}
{"Action":"output","Package":"p","Test":"T/b","Output":"    x_test.go:4: b the first time\n"}
{"Action":"fail","Package":"p","Test":"T/b"}
{"Action":"fail","Package":"p","Test":"T"}
{"Action":"fail","Package":"p"}
`
	const aPassed = `{"Action":"run","Package":"p","Test":"T"}
{"Action":"run","Package":"p","Test":"T/a"}
{"Action":"pass","Package":"p","Test":"T/a"}
{"Action":"pass","Package":"p","Test":"T"}
{"Action":"pass","Package":"p"}
`
	const bFailed = `{"Action":"run","Package":"p","Test":"T"}
{"Action":"run","Package":"p","Test":"T/b"}
{"Action":"output","Package":"p","Test":"T/b","Output":"    x_test.go:4: b the second time\n"}
{"Action":"fail","Package":"p","Test":"T/b"}
{"Action":"fail","Package":"p","Test":"T"}
{"Action":"fail","Package":"p"}
`
	a := failure{"p", "T/a", []string{"x_test.go:3: a the first time"}}
	b := failure{"p", "T/b", []string{"x_test.go:4: b the second time"}}
	for _, again := range []string{aPassed + bFailed, bFailed + aPassed} {
		failed, flaky, err := readFailures(strings.NewReader(first + again))
		if err != nil || !reflect.DeepEqual(failed, []failure{b}) || !reflect.DeepEqual(flaky, []failure{a}) {
			t.Errorf("failed = %q, flaky = %q, %v, want %q and %q", failed, flaky, err, b, a)
		}
	}
	failed, _, err := readFailures(strings.NewReader(first + strings.ReplaceAll(aPassed, `"pass"`, `"skip"`)))
	if err != nil || len(failed) != 2 {
		t.Errorf("failed = %q, %v, want what was skipped the second time as well", failed, err)
	}
}
