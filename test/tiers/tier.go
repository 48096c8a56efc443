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

// tier is a target of the Makefile and what came of it.
type tier struct {
	name  string
	logs  string // the folder of its output
	make  string // the command that runs a target
	limit time.Duration

	err error
	// took is by the clock; busy is the processor time of all its processes.
	took, busy time.Duration
	// flaky are tests that failed, and passed when they ran again.
	flaky []failure
}

// log is where its output is kept, events where what `go test -json` says of each test.
func (t *tier) log() string    { return filepath.Join(t.logs, t.name+".log") }
func (t *tier) events() string { return filepath.Join(t.logs, t.name+".json") }

// String says how long it took.
func (t *tier) String() string {
	word := ""
	if t.err != nil {
		word = ", FAILED"
	}
	return fmt.Sprintf("== make %s: %.0f s, %.0f s of processor time%s", t.name, t.took.Seconds(), t.busy.Seconds(), word)
}

// run runs it. Its output goes to out and to its log. With ctx, or after its
// limit, all its processes end.
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
	// gotestsum, which runs the Go tests of a tier, reads where the events go.
	events, err := filepath.Abs(t.events())
	if err != nil {
		t.err = err
		return
	}
	cmd.Env = append(os.Environ(), "GOTESTSUM_JSONFILE="+events)
	cmd.Stdout = io.MultiWriter(out, log)
	cmd.Stderr = cmd.Stdout
	// What a shell script left running keeps the pipe; it is not waited for.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	t.err = cmd.Run()
	if ctx.Err() != nil {
		t.err = context.Cause(ctx)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what did not heed the first word
		fmt.Fprintf(cmd.Stdout, "%s: %v (the limit is %s)\n", t.name, t.err, t.limit)
	}
	if cmd.ProcessState != nil {
		t.busy = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err := t.judge(); t.err == nil {
		t.err = err
	}
}

// judge reads what became of each test. Of a package that failed without a test to
// name (its TestMain, a data race after the last test) nothing is left when it runs
// again, so that it then passed says nothing.
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

// errTooLong is the end of a tier that took longer than it may.
var errTooLong = errors.New("took too long")
