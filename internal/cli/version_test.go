package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	run := func(args ...string) string {
		var out bytes.Buffer
		root := NewRoot("x", "short", "long", &out, io.Discard)
		root.AddCommand(NewVersionCommand())
		if code := Execute(root, args, io.Discard); code != ExitOK {
			t.Fatalf("%v: status %d", args, code)
		}
		return out.String()
	}
	if a, b, c := run("--version"), run("version"), run("-v"); a != Version+"\n" || a != b || a != c {
		t.Errorf("--version prints %q, version %q, -v %q, want %q from all", a, b, c, Version)
	}
	for _, args := range [][]string{{"--version", "--help"}, {"--help", "-v"}, {"--version=false"}, {"--help"}, {"help"}, {}} {
		if got := run(args...); !strings.Contains(got, "\nFlags:\n") || !strings.Contains(got, "  -v, --version   version for x\n") {
			t.Errorf("%v prints %q, want the help", args, got)
		}
	}
	if got := run("version", "--help"); !strings.Contains(got, "x version [flags]") {
		t.Errorf("version --help prints %q, want its help", got)
	}
	var b Build
	if err := json.Unmarshal([]byte(run("version", "-o", "json")), &b); err != nil || b.Version != Version || b.Go != runtime.Version() {
		t.Errorf("version -o json = %+v, %v", b, err)
	}
}
