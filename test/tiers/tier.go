package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// tier is a target of the Makefile with its result.
type tier struct {
	name  string
	logs  string // the folder of its output
	make  string // the command that runs a target
	limit time.Duration

	err error
	// took is by the clock; busy is the processor time of all its processes.
	took, busy time.Duration
	// flaky are lines on tests that failed, and passed when repeated.
	flaky []string
}

// log is the file of its output, events that of `go test -json`, report gotestsum's
// report on repeated tests.
func (t *tier) log() string    { return filepath.Join(t.logs, t.name+".log") }
func (t *tier) events() string { return filepath.Join(t.logs, t.name+".json") }
func (t *tier) report() string { return filepath.Join(t.logs, t.name+".reruns") }

// String returns the duration.
func (t *tier) String() string {
	word := ""
	if t.err != nil {
		word = ", FAILED"
	}
	return fmt.Sprintf("== make %s: %.0f s, %.0f s of processor time%s", t.name, t.took.Seconds(), t.busy.Seconds(), word)
}

// run runs the target. Its output goes to out and to its log. After ctx or its
// limit, it ends all processes of the target.
func (t *tier) run(ctx context.Context, out io.Writer) {
	began := time.Now()
	defer func() { t.took = time.Since(began) }()
	ctx, cancel := context.WithTimeoutCause(ctx, t.limit, errTooLong)
	defer cancel()
	for _, file := range []string{t.events(), t.report()} { // of the run before
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.err = err
			return
		}
	}
	log, err := os.Create(t.log())
	if err != nil {
		t.err = err
		return
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, t.make, "--no-print-directory", t.name)
	// gotestsum, which runs the Go tests of a tier, writes these files.
	events, err := filepath.Abs(t.events())
	report, err2 := filepath.Abs(t.report())
	if t.err = errors.Join(err, err2); t.err != nil {
		return
	}
	cmd.Env = append(os.Environ(), "GOTESTSUM_JSONFILE="+events, "RERUNS="+report)
	cmd.Stdout = io.MultiWriter(out, log)
	cmd.Stderr = cmd.Stdout
	// Processes that a shell script leaves running hold the pipe; they are not
	// waited for.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	t.err = cmd.Run()
	if ctx.Err() != nil {
		t.err = context.Cause(ctx)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // processes that ignored SIGTERM
		fmt.Fprintf(cmd.Stdout, "%s: %v (the limit is %s)\n", t.name, t.err, t.limit)
	}
	if cmd.ProcessState != nil {
		t.busy = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	t.flaky, err = t.readRepeated()
	if err = errors.Join(err, t.judge()); t.err == nil {
		t.err = err
	}
}

// errTooLong is the error of a tier that exceeded its limit.
var errTooLong = errors.New("took too long")
