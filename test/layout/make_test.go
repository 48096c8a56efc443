package layout

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMake_CtrlCIsNoFailure runs a target like dev on a terminal and presses Ctrl-C: make
// exits with 0 if the program does.
func TestMake_CtrlCIsNoFailure(t *testing.T) {
	t.Parallel()
	if !strings.Contains(read(t, filepath.Join(root, "Makefile")), "@./test/foreground bin/outbox-dev run $(if $(CONFIG),--config $(CONFIG))\n") {
		t.Fatal("make dev does not run outbox-dev by test/foreground")
	}
	foreground, err := filepath.Abs(filepath.Join(root, "test/foreground"))
	if err != nil {
		t.Fatal(err)
	}
	makefile := filepath.Join(t.TempDir(), "Makefile")
	recipe := "dev:\n\t@" + foreground + ` sh -c 'trap "exit 0" INT; echo ready; while :; do sleep 0.1; done'` + "\n"
	if err := os.WriteFile(makefile, []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it must not block all tests
	defer cancel()
	cmd := exec.CommandContext(ctx, "script", "-qec", "make -f "+makefile+" dev", "/dev/null") // on a terminal
	keyboard, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	screen, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(screen)
	for lines.Scan() && !strings.Contains(lines.Text(), "ready") {
		t.Log(lines.Text())
	}
	if _, err := keyboard.Write([]byte{3}); err != nil {
		t.Error(err)
	}
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("make exits with %v after Ctrl-C", err)
	}
}
