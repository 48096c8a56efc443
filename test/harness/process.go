package harness

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/ports"
)

// Patience is the maximum wait of a test for a process to start, log or end, on
// a busy machine, too.
const Patience = 5 * time.Minute

// binaries are the programs, each built once for the test process.
var binaries struct {
	once sync.Once
	dir  string
	err  error
}

// ofDevkit are the commands of outbox-dev; all others belong to outbox.
var ofDevkit = []string{"run", "engines", "bench", "load"}

// Binary builds outbox and outbox-dev, once for the test process, and returns the path
// of the one that has the command. Main removes them.
func Binary(t testing.TB, command string) string {
	t.Helper()
	binaries.once.Do(func() {
		if binaries.dir, binaries.err = os.MkdirTemp("", "outbox-test-"); binaries.err != nil {
			return
		}
		for _, name := range []string{"cmd/outbox", "devkit/cmd/outbox-dev"} {
			out, err := exec.Command("go", "build", "-o", binaries.dir+"/", "github.com/scylla-outbox/scylla-outbox/"+name).CombinedOutput()
			if err != nil {
				binaries.err = fmt.Errorf("build %s: %w\n%s", name, err, out)
				return
			}
		}
	})
	if binaries.err != nil {
		t.Fatal(binaries.err)
	}
	if slices.Contains(ofDevkit, command) {
		return filepath.Join(binaries.dir, "outbox-dev")
	}
	return filepath.Join(binaries.dir, "outbox")
}

// Main runs the tests of a package that uses Binary, and removes the binary:
//
//	func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
func Main(m *testing.M) int {
	defer func() {
		if binaries.dir != "" {
			_ = os.RemoveAll(binaries.dir)
		}
	}()
	return m.Run()
}

// Process is a running outbox command. It can be killed and restarted. Its
// methods are not safe for concurrent use.
type Process struct {
	t    testing.TB
	name string
	args []string
	env  []string // in addition
	// program replaces the one that has the command, unless empty.
	program string

	cmd    *exec.Cmd
	exited chan struct{}
	out    bytes.Buffer // stdout of the run
	log    *os.File     // stderr of all runs
}

// Start starts `outbox args…`. The end of the test stops it; if the test
// failed, the end of its log is shown.
func Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return start(t, name, "", nil, args)
}

// StartProgram is Start with another program, such as that of Next; empty is the one of this
// tree.
func StartProgram(t testing.TB, name, program string, args ...string) *Process {
	t.Helper()
	return start(t, name, program, nil, args)
}

func start(t testing.TB, name, program string, env, args []string) *Process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, name: name, program: program, args: args, env: env, log: log}
	t.Cleanup(p.end)
	p.Restart()
	return p
}

// Restart starts the process again after it ended.
func (p *Process) Restart() {
	p.t.Helper()
	p.out.Reset()
	program := p.program
	if program == "" {
		program = Binary(p.t, p.args[0])
	}
	p.cmd = exec.Command(program, p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, p.log
	p.cmd.SysProcAttr = dieWithParent()
	p.exited = make(chan struct{})
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait() // the state is read from cmd
		close(exited)
	}(p.cmd, p.exited)
}

// Upgrade stops the process and starts it with another program; empty is the one of this
// tree.
func (p *Process) Upgrade(program string) {
	p.t.Helper()
	p.Stop()
	p.program = program
	p.Restart()
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process like a crash: by SIGKILL.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("signal %s: %v", p.name, err)
	}
}

// Stop sends SIGTERM and fails the test unless the process ends with exit
// status 0.
func (p *Process) Stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("stop %s: %v", p.name, err)
	}
	if code := p.Wait(); code != 0 {
		p.t.Errorf("%s ended with status %d after SIGTERM, want 0", p.name, code)
	}
}

// Wait waits for the end of the process and returns its exit status. After
// Patience it kills the process and fails the test.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(Patience):
		p.Kill()
		p.t.Errorf("%s did not end within %s", p.name, Patience)
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

// Output returns the stdout of the last run of an ended process.
func (p *Process) Output() string {
	<-p.exited
	return p.out.String()
}

// Log returns the stderr of all runs.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// end stops a running process.
func (p *Process) end() {
	if p.Running() {
		p.Kill()
	}
	if p.t.Failed() {
		lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
		p.t.Logf("the end of %s's log:\n%s", p.name, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	if dir := os.Getenv("OUTBOX_KEEP_LOGS"); dir != "" && p.t.Failed() {
		_ = os.WriteFile(filepath.Join(dir, p.t.Name()+"-"+p.name+".log"), []byte(p.Log()), 0o600)
	}
	_ = p.log.Close()
}

// Run runs a command to its end and returns its output and exit status. Its
// timeouts for the database are the ones of a test: a command does not retry like
// a service.
func Run(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := start(t, args[0], "", []string{"OUTBOX_SCYLLA_TIMEOUT=" + Patience.String()}, args)
	code = p.Wait()
	return p.Output(), p.Log(), code
}

// Must runs a command to its end and fails the test unless it succeeds.
func Must(t testing.TB, args ...string) string {
	t.Helper()
	stdout, stderr, code := Run(t, args...)
	if code != 0 {
		t.Fatalf("outbox %s: status %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// FreeAddrs returns unused addresses on loopback that stay free while a process
// that has one is restarted.
func FreeAddrs(t testing.TB, n int) []string {
	t.Helper()
	out, err := ports.Take(n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Reachable waits until a process listens on addr.
func Reachable(t testing.TB, addr string) {
	t.Helper()
	Until(t, "a listener on "+addr, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// Ready waits until the service at addr is ready: it listens before its
// database is available.
func Ready(t testing.TB, addr string) {
	t.Helper()
	Until(t, "200 from /readyz at "+addr, func() bool {
		resp, err := http.Get("http://" + addr + "/readyz") //nolint:noctx // the test ends with the process
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// Until waits until ok, and fails the test after Patience.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}
