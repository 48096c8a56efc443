package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/ports"
)

// Metrics are on the ops listener alone, and there only for allowed hosts.
func TestRun_MetricsAreOnTheAdminListener(t *testing.T) {
	t.Parallel()
	addrs, err := ports.Take(5)
	if err != nil {
		t.Fatal(err)
	}
	admin, api, adminAPI, subscriptions, messages := addrs[0], addrs[1], addrs[2], addrs[3], addrs[4]
	ctx, stop := context.WithCancel(t.Context())
	root := newRoot(io.Discard, io.Discard)
	root.SetArgs([]string{
		"run", "--data-dir", "", "--load", os.DevNull, "--cql-addr", "127.0.0.1:0", "--kafka-addr", "127.0.0.1:0",
		"--orders-addr", api, "--admin-addr", adminAPI, "--messages-addr", messages, "--subscriptions-addr", subscriptions, "--ops-addr", admin,
	})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run ended with %v", err)
		}
	}()
	for _, addr := range []string{admin, api, adminAPI, subscriptions, messages} {
		for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if code, _ := get(t, addr, "/readyz", ""); code == http.StatusOK {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s is not ready", addr)
			}
		}
	}
	for _, x := range []struct {
		addr, host, path string
		want             int
	}{
		{admin, "", "/metrics", 200},
		{admin, "localhost:9090", "/metrics", 200},
		{admin, "rebound.example", "/metrics", 403},
		{admin, "", "/debug/pprof/", 404},
		{api, "", "/metrics", 404},
		{api, "", "/debug/pprof/", 404},
		{messages, "", "/metrics", 404},
		{messages, "", "/debug/pprof/", 404},
		{adminAPI, "", "/metrics", 404},
		{adminAPI, "", "/debug/pprof/", 404},
		{subscriptions, "", "/metrics", 404},
		{subscriptions, "", "/debug/pprof/", 404},
	} {
		code, text := get(t, x.addr, x.path, x.host)
		if code != x.want || code == 200 && !strings.Contains(text, "\noutbox_relay_streams") {
			t.Errorf("%s of %s for host %q = %d, want %d", x.path, x.addr, x.host, code, x.want)
		}
	}
}

// get returns the status and the body of an answer, 0 where nothing listens yet. An
// empty host is that of the address.
func get(t *testing.T, addr, path, host string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	var refused *net.OpError
	if errors.As(err, &refused) {
		return 0, ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
