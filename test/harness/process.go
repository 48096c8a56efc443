package harness

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/processes"
	"github.com/scylla-outbox/scylla-outbox/devkit/processes/processtest"
	"github.com/scylla-outbox/scylla-outbox/test/ports"
)

// Patience is the maximum wait of a test for a process to start, log or end, on
// a busy machine, too.
const Patience = processes.Patience

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

// Process is a running outbox command. It can be killed and restarted.
type Process = processes.Process

// Start starts `outbox args…`. The end of the test stops it; if the test
// failed, the end of its log is shown.
func Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return StartProgram(t, name, Binary(t, args[0]), args...)
}

// StartProgram is Start with another program, such as that of Next.
func StartProgram(t testing.TB, name, program string, args ...string) *Process {
	t.Helper()
	return processtest.Start(t, name, program, nil, args)
}

// Run runs a command to its end and returns its output and exit status. Its
// timeouts for the database are the ones of a test: a command does not retry like
// a service.
func Run(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := processtest.Start(t, args[0], Binary(t, args[0]), []string{"OUTBOX_SCYLLA_TIMEOUT=" + Patience.String()}, args)
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
