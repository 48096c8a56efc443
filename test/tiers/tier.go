package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// flaky are tests that failed, and passed when repeated.
	flaky []failure
}

// log is the file of its output, events that of `go test -json`.
func (t *tier) log() string    { return filepath.Join(t.logs, t.name+".log") }
func (t *tier) events() string { return filepath.Join(t.logs, t.name+".json") }

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
	if t.err = os.Remove(t.events()); os.IsNotExist(t.err) {
		t.err = nil
	}
	log, err := os.Create(t.log())
	if err != nil {
		t.err = err
		return
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, t.make, "--no-print-directory", t.name)
	// gotestsum, which runs the Go tests of a tier, reads the path of the events.
	events, err := filepath.Abs(t.events())
	if err != nil {
		t.err = err
		return
	}
	cmd.Env = append(os.Environ(), "GOTESTSUM_JSONFILE="+events)
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
	if err := t.judge(); t.err == nil {
		t.err = err
	}
}

// judge reads the result of each test. A package that failed without a failed
// test (in TestMain, or by a data race after the last test) runs no test when
// repeated, so its success is not a result.
func (t *tier) judge() error {
	failed, again, err := failures(t.events())
	for _, f := range again {
		if f.test != "" {
			t.flaky = append(t.flaky, f)
			continue
		}
		err = errors.Join(err, fmt.Errorf("%s failed, and not by a test", place(f.pkg)))
	}
	for _, f := range failed {
		err = errors.Join(err, fmt.Errorf("%s %s failed", place(f.pkg), f.test))
	}
	return err
}

// errTooLong is the error of a tier that exceeded its limit.
var errTooLong = errors.New("took too long")
