package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const untilASecondSignal = "DAEMON_TEST_UNTIL_A_SECOND_SIGNAL"

// A second signal ends the process without waiting for the drain, however long that
// takes.
func TestSignals_SecondSignalEndsTheProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv(untilASecondSignal) != "" {
		ctx, stop := Signals(context.Background())
		defer stop()
		fmt.Println("\nup")
		<-ctx.Done()
		fmt.Println("\nstopping")
		select {} // a drain without an end
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a process that drains is killed
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), untilASecondSignal+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, step := range []struct {
		says string
		then os.Signal
	}{{"up", syscall.SIGTERM}, {"stopping", os.Interrupt}} {
		for lines.Scan() && strings.TrimSpace(lines.Text()) != step.says {
		}
		if err := cmd.Process.Signal(step.then); err != nil {
			t.Fatalf("after %q: %v", step.says, err)
		}
	}
	for lines.Scan() { // until it has ended
	}
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) || ended.ExitCode() != exitInterrupted {
		t.Errorf("the process ended with %v, want exit status %d", err, exitInterrupted)
	}
}
