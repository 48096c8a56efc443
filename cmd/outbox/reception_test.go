package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/devkit/engines"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/test/ports"
)

// freeHosts counts the hosts that freeAddr has given away.
var freeHosts atomic.Uint32

// freeAddr returns an address at which nobody listens: on Linux its host is a loopback
// address that no other test uses, of this process or of another one, and nobody else
// takes its port while a service is not listening yet.
func freeAddr(t *testing.T) string {
	t.Helper()
	addrs, err := ports.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()>>8%254, os.Getpid()%256, freeHosts.Add(1))
	}
	return net.JoinHostPort(host, port)
}

// sendRequest is one request's answer; its status is 0 if there is none.
func sendRequest(t *testing.T, method, url, secret, body string) (status int, header http.Header, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// until waits until /readyz at an address has the status, and something in its text.
func until(t *testing.T, addr string, want int, has string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		code, _, text := sendRequest(t, "GET", "http://"+addr+"/readyz", "", "")
		if code == want && strings.Contains(text, has) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("/readyz at %s = %d %s, want %d %s", addr, code, text, want, has)
		}
	}
}

// Services that begin before their database listen immediately, report the cause of the wait, ask
// callers to retry, and work when it is there.
func TestServices_ListenBeforeTheirDatabaseIsThere(t *testing.T) {
	t.Parallel()
	cql := freeAddr(t)
	secret, file := token(t, "operator")
	yaml, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig(t, string(yaml), nil, "--scylla-hosts", cql, "--scylla-timeout", "1m", "--kafka-seeds", "127.0.0.1:1", "--http-drain-delay", "0")
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]func(*cobra.Command, *app.Config) error{"orders": runOrders, "messages": runMessages, "admin": runAdmin}
	addrs, listeners := map[string]string{}, map[string]string{}
	for name := range runs {
		addrs[name], listeners[name] = freeAddr(t), freeAddr(t)
	}
	c.OrdersAddr, c.Messages.Addr, c.Admin.Addr = addrs["orders"], addrs["messages"], addrs["admin"]
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(map[string]chan error)
	for name, run := range runs {
		conf, cmd, end := *c, &cobra.Command{}, make(chan error, 1)
		conf.Ops.Addr = listeners[name]
		cmd.SetContext(ctx)
		cmd.SetErr(io.Discard)
		ended[name] = end
		go func() {
			err := run(cmd, &conf)
			if ctx.Err() == nil {
				t.Errorf("%s ended before it was stopped: %v", name, err)
			}
			end <- err
		}()
	}
	for name, addr := range addrs {
		until(t, addr, 503, "waiting for ScyllaDB: connect to ScyllaDB at "+cql)
		if code, _, text := sendRequest(t, "GET", "http://"+addr+"/livez", "", ""); code != 200 {
			t.Errorf("%s: /livez = %d %s of one that waits", name, code, text)
		}
		code, header, text := sendRequest(t, "POST", "http://"+addr+"/v1/orders", secret, "{}")
		var p struct{ Type, Detail string }
		if err := json.Unmarshal([]byte(text), &p); err != nil || code != 503 || header.Get("Retry-After") == "" || header.Get("Content-Type") != "application/problem+json" ||
			p.Type != "urn:scylla-outbox:problem:database-unavailable" || strings.Contains(p.Detail, cql) || header.Get("X-Request-Id") == "" {
			t.Errorf("%s: a request = %d %v %s, want that it is to come again, and nothing of what is behind", name, code, header, text)
		}
	}
	for name, addr := range addrs {
		if code, _, text := sendRequest(t, "GET", "http://"+addr+"/metrics", "", ""); code != 503 || strings.Contains(text, "scylla_") {
			t.Errorf("%s: /metrics at the address of the API = %d %.200s", name, code, text)
		}
		if _, _, text := sendRequest(t, "GET", "http://"+listeners[name]+"/metrics", "", ""); !strings.Contains(text, `outbox_scylla_requests_total{result="unreached"}`) {
			t.Errorf("%s: /metrics of one that waits has nothing of the database: %.200s", name, text)
		}
		until(t, listeners[name], 503, "waiting for ScyllaDB: connect to ScyllaDB at "+cql)
	}

	log := slog.New(slog.DiscardHandler)
	teardown := &daemon.Teardown{Logger: log}
	t.Cleanup(func() {
		if err := teardown.Run(); err != nil {
			t.Error(err)
		}
	})
	e := engines.Engines{CQLAddr: cql, KafkaAddr: "127.0.0.1:0", Tokens: 4}
	if err := e.Start(teardown, log); err != nil {
		t.Fatal(err)
	}
	// The first migration leaves a keyspace without tables for a moment.
	session, err := app.ScyllaConfig{Hosts: []string{cql}}.Session("system")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if err := session.Query("CREATE KEYSPACE outbox WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}").Exec(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		until(t, addr, 503, "keyspace outbox has no table outbox_messages")
	}
	var out, errOut bytes.Buffer
	if code := run([]string{"schema", "migrate", "--scylla-hosts", cql, "--scylla-timeout", "1m", "--components", "schedule,subscriptions,orders"}, &out, &errOut); code != cli.ExitOK {
		t.Fatalf("schema migrate: status %d: %s", code, errOut.String())
	}
	for name, addr := range addrs {
		until(t, addr, 200, "")
		until(t, listeners[name], 200, "")
	}
	if code, _, text := sendRequest(t, "POST", "http://"+addrs["messages"]+"/v1/messages", "", `{"topic":"reminders","payload":1}`); code != 202 {
		t.Errorf("messages: a message = %d %s", code, text)
	}
	if code, _, text := sendRequest(t, "GET", "http://"+addrs["admin"]+"/v1/orders?customer_id=ann", secret, ""); code != 200 {
		t.Errorf("admin: orders, which the keyspace has, = %d %s", code, text)
	}
	if code, _, text := sendRequest(t, "GET", "http://"+addrs["admin"]+"/v1/me", secret, ""); code != 200 || !strings.Contains(text, "ann") {
		t.Errorf("admin: /v1/me = %d %s", code, text)
	}
	stop()
	for name, end := range ended {
		if err := <-end; err != nil {
			t.Errorf("%s ended with %v", name, err)
		}
	}
}

// A service that is stopped while it waits ends, and leaves its address. One that cannot listen
// reports that before it waits.
func TestServices_EndWhileTheyWait(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	c, err := parseConfig(t, "", nil, "--scylla-hosts", "127.0.0.1:1", "--messages-addr", addr, "--ops-addr", "off")
	if err != nil {
		t.Fatal(err)
	}
	start := func(ctx context.Context) <-chan error {
		conf, cmd, end := *c, &cobra.Command{}, make(chan error, 1)
		cmd.SetContext(ctx)
		cmd.SetErr(io.Discard)
		go func() { end <- runMessages(cmd, &conf) }()
		return end
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first := start(ctx)
	until(t, addr, 503, "waiting for ScyllaDB")
	var h cli.Hint
	if err := <-start(t.Context()); !errors.As(err, &h) || !strings.Contains(h.Text, "another process uses "+addr) {
		t.Errorf("a second one at the same address: %v", err)
	}
	stop()
	if err := <-first; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if code, _, text := sendRequest(t, "GET", "http://"+addr+"/livez", "", ""); code != 0 {
		t.Errorf("its address answers %d %s", code, text)
	}
}

// After SIGTERM the admin API is not ready, and for http.drain_delay still serves new requests.
func TestAdmin_LeavesBehindALoadBalancer(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	secret, file := token(t, "viewer")
	yaml, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig(t, string(yaml), nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--admin-addr", "127.0.0.1:0", "--http-drain-delay", "1h")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	gate, err := c.AdminGate(log)
	if err != nil {
		t.Fatal(err)
	}
	var ln net.Listener
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	a, err := app.StartAdmin(ctx, c, gate, b.session, nil, app.NewRegistry(""), log, func(ctx context.Context, log *slog.Logger) (_ net.Listener, err error) {
		ln, err = c.ListenAdmin(ctx, log)
		return ln, err
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, a.Addr, 200, "")
	leave()
	until(t, a.Addr, 503, "urn:scylla-outbox:problem:stopping")
	if code, header, text := sendRequest(t, "GET", "http://"+a.Addr+"/v1/me", secret, ""); code != 200 {
		t.Errorf("/v1/me while it leaves = %d %v %s", code, header, text)
	}
	if err := ln.Close(); err != nil { // instead of waiting for an hour
		t.Fatal(err)
	}
	if err := a.Wait(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("wait() = %v, want that the listener was closed", err)
	}

	if _, err := parseConfig(t, "", nil, "--http-drain-delay", "-1s"); err == nil || !strings.Contains(err.Error(), "http.drain_delay: -1s is below") {
		t.Errorf("http.drain_delay -1s: error = %v", err)
	}
}
