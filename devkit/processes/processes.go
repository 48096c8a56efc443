// Package processes runs programs that tests and drills kill and start again.
package processes

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Patience is the maximum wait for a process to end, on a busy machine, too.
const Patience = 5 * time.Minute

// Config describes a process.
type Config struct {
	// Name is the name of the process in errors.
	Name string
	// Path is the program, Args are its arguments, Env is its environment beside that of this process.
	Path string
	Args []string
	Env  []string
	// Log is the file to which the standard error of all runs is appended. Required.
	Log *os.File
	// Fail receives what goes wrong, such as testing.T.Errorf. Required.
	Fail func(format string, args ...any)
}

// Process is a running program. It can be killed and started again. Its methods are not safe
// for concurrent use. It ends with this process.
type Process struct {
	conf Config

	cmd    *exec.Cmd
	exited chan struct{}
	out    bytes.Buffer // stdout of the run
}

// Start starts a process.
func Start(c Config) *Process {
	p := &Process{conf: c}
	p.Restart()
	return p
}

// Restart starts the process again after it ended.
func (p *Process) Restart() {
	p.out.Reset()
	p.cmd = exec.Command(p.conf.Path, p.conf.Args...)
	p.cmd.Env = append(os.Environ(), p.conf.Env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, p.conf.Log
	p.cmd.SysProcAttr = dieWithParent()
	p.exited = make(chan struct{})
	if err := p.cmd.Start(); err != nil {
		close(p.exited)
		p.conf.Fail("start %s: %v", p.conf.Name, err)
		return
	}
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait() // the state is read from cmd
		close(exited)
	}(p.cmd, p.exited)
}

// Upgrade stops the process and starts another program with the same arguments.
func (p *Process) Upgrade(path string) {
	p.Stop()
	p.conf.Path = path
	p.Restart()
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process like a crash: by SIGKILL.
func (p *Process) Kill() {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // it may have ended
	}
	<-p.exited
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.conf.Fail("signal %s: %v", p.conf.Name, err)
	}
}

// Stop sends SIGTERM and fails unless the process ends with exit status 0.
func (p *Process) Stop() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.conf.Fail("stop %s: %v", p.conf.Name, err)
	}
	if code := p.Wait(); code != 0 {
		p.conf.Fail("%s ended with status %d after SIGTERM, want 0", p.conf.Name, code)
	}
}

// Wait waits for the end of the process and returns its exit status. After
// Patience it kills the process and fails.
func (p *Process) Wait() int {
	select {
	case <-p.exited:
	case <-time.After(Patience):
		p.Kill()
		p.conf.Fail("%s did not end within %s", p.conf.Name, Patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Running reports whether the process is running.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Output returns the standard output of the last run of an ended process.
func (p *Process) Output() string {
	<-p.exited
	return p.out.String()
}

// Log returns the standard error of all runs.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.conf.Log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}
