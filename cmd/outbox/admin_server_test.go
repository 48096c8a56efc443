package main

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// waitingRelay starts a relay whose database is away. ended delivers its error, once.
func waitingRelay(t *testing.T) (addr string, stop func(), ended <-chan error) {
	t.Helper()
	addr = freeAddr(t)
	c, err := parseConfig(t, "", nil, "--scylla-hosts", "127.0.0.1:1", "--kafka-seeds", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	c.Ops.Addr = addr
	ctx, stop := context.WithCancel(t.Context())
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetErr(io.Discard)
	end := make(chan error, 1)
	go func() { end <- app.RunRelay(cmd, c, app.BackfillRequest{}) }()
	return addr, stop, end
}

// A relay whose database is away when it starts serves HTTP all the same: /readyz reports the cause
// of the wait, and /metrics that nothing is reached.
func TestRelay_ReportsThatItWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	addr, stop, ended := waitingRelay(t)
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		code, text := get("/readyz")
		if code == http.StatusServiceUnavailable && strings.Contains(text, "waiting for ScyllaDB: connect to ScyllaDB at 127.0.0.1:1") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("/readyz says %d %s", code, text)
		}
	}
	if code, _ := get("/livez"); code != http.StatusOK {
		t.Errorf("/livez says %d of a process that waits", code)
	}
	if _, text := get("/metrics"); !strings.Contains(text, "outbox_scylla_requests_total{result=\"unreached\"}") || strings.Contains(text, "outbox_scylla_requests_total{result=\"unreached\"} 0") {
		t.Error("/metrics has nothing of the database")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("runRelay() error = %v, want none after a stop", err)
	}
}

// An admin server that dies takes its process with it: nobody would see whether that
// works. A supervisor starts it anew.
func TestRelay_EndsWithItsAdminServer(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere a socket that listens is not shut down")
	}
	addr, _, ended := waitingRelay(t)
	for end := time.Now().Add(5 * time.Minute); !stopListening(addr); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody listens on " + addr)
		}
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "serve HTTP on "+addr) {
			t.Errorf("runRelay() error = %v, want why the admin server ended", err)
		}
	case <-time.After(5 * time.Minute):
		t.Error("the relay runs without its admin server")
	}
}

// stopListening shuts down this process's socket that listens on addr, as no code
// does; false if there is none.
func stopListening(addr string) bool {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return false
	}
	for fd := 3; fd < 4096; fd++ {
		name, err := syscall.Getsockname(fd)
		listens, _ := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
		if v4, ok := name.(*syscall.SockaddrInet4); ok && err == nil && listens == 1 && v4.Port == int(at.Port()) && v4.Addr == at.Addr().As4() {
			return syscall.Shutdown(fd, syscall.SHUT_RD) == nil
		}
	}
	return false
}
