package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// A relay whose database is away when it starts is there all the same: /readyz says
// for what it waits, and /metrics that nothing is reached.
func TestRelay_SaysThatItWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := testConfig(t, "", nil, "--scylla-hosts", "127.0.0.1:1", "--kafka-seeds", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	c.Admin.Addr = addr
	ctx, stop := context.WithCancel(t.Context())
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetErr(io.Discard)
	ended := make(chan error, 1)
	go func() { ended <- runRelay(cmd, c, time.Time{}) }()
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
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		code, text := get("/readyz")
		if code == http.StatusServiceUnavailable && strings.Contains(text, "ScyllaDB is waited for: connect to ScyllaDB at 127.0.0.1:1") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("/readyz says %d %s", code, text)
		}
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz says %d of a process that waits", code)
	}
	if _, text := get("/metrics"); !strings.Contains(text, "scylla_requests_total{result=\"unreached\"}") || strings.Contains(text, "scylla_requests_total{result=\"unreached\"} 0") {
		t.Error("/metrics has nothing of the database")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("runRelay() error = %v, want none after a stop", err)
	}
}
