package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"runtime"
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
	if a, b := run("--version"), run("version"); a != Version+"\n" || a != b {
		t.Errorf("--version prints %q, version %q, want %q from both", a, b, Version)
	}
	var b Build
	if err := json.Unmarshal([]byte(run("version", "-o", "json")), &b); err != nil || b.Version != Version || b.Go != runtime.Version() {
		t.Errorf("version -o json = %+v, %v", b, err)
	}
}
