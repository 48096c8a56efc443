package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// Ctrl-C ends dev with status 0, during the load and after it.
func TestDev_EndsWithZeroAfterCtrlC(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orders.jsonl")
	write(t, file, order("1"))
	for name, tt := range map[string]struct {
		args    []string
		answers int
	}{
		"during the load": {[]string{"--rate", "100"}, 10},
		"after the load":  {[]string{"--load", file}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := harness.FreeAddrs(t, 5)
			d := harness.Start(t, "dev", append([]string{
				"run", "--data-dir", filepath.Join(t.TempDir(), "data"), "--cql-addr", addrs[0], "--kafka-addr", addrs[1], "--orders-addr", addrs[2],
				"--admin-addr", addrs[3], "--messages-addr", "127.0.0.1:0", "--subscriptions-addr", "127.0.0.1:0", "--ops-addr", addrs[4],
			}, tt.args...)...)
			harness.Until(t, "answers to the load", func() bool { return harness.Answered(addrs[4]) >= tt.answers })
			d.Signal(os.Interrupt)
			if code := d.Wait(); code != 0 || !strings.Contains(d.Log(), "stopping; data is kept in") {
				t.Errorf("status %d, want 0\n%s", code, d.Log())
			}
		})
	}
}

// A disk that takes no more ends dev with an error, without a signal. Here no file may become
// larger than 2 MiB.
func TestDev_EndsOnAFullDisk(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the unit of ulimit -f and the error are those of Linux")
	}
	dir, addrs := filepath.Join(t.TempDir(), "data"), harness.FreeAddrs(t, 5)
	d := harness.StartProgram(t, "dev", "/bin/bash", "-c", `ulimit -f 2048 && exec "$0" "$@"`, harness.Binary(t, "run"),
		"run", "--data-dir", dir, "--cql-addr", addrs[0], "--kafka-addr", addrs[1], "--orders-addr", addrs[2],
		"--admin-addr", addrs[3], "--messages-addr", "127.0.0.1:0", "--subscriptions-addr", "127.0.0.1:0", "--ops-addr", addrs[4])
	code := d.Wait()
	for _, want := range []string{"data directory " + dir + ": ", "file too large", "hint: free space on that disk"} {
		if !strings.Contains(d.Log(), want) {
			t.Errorf("the log does not contain %q", want)
		}
	}
	if code != 1 {
		t.Errorf("status %d, want 1", code)
	}
}
