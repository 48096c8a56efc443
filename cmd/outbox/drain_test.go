package main

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// After SIGTERM the messages API is not ready, and for http.drain_delay still serves new requests;
// open event streams continue.
func TestMessages_LeavesBehindALoadBalancer(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	c, err := parseConfig(t, "", nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--http-drain-delay", "1h")
	if err != nil {
		t.Fatal(err)
	}
	reg, log := app.NewRegistry(""), slog.New(slog.DiscardHandler)
	services, err := app.NewServices(t.Context(), c, b.session, app.Parts{Messages: true}, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = services.Close() }()
	server, hub, err := app.NewMessageServer(c, b.session, services, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	served := make(chan error, 1)
	watching := make(chan struct{})
	go func() {
		served <- server.Serve(ctx, ln, func(ctx context.Context) error {
			defer close(watching)
			return hub.Run(ctx)
		})
	}()

	ask := func(method, path, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+ln.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	status := func(method, path, body string) int {
		resp := ask(method, path, body)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	watched := ask("GET", "/v1/events/stream?topics=reminders", "")
	defer watched.Body.Close()
	lines := bufio.NewScanner(watched.Body)
	if !lines.Scan() || watched.StatusCode != 200 {
		t.Fatalf("watch = %d %q", watched.StatusCode, lines.Text())
	}
	if code := status("GET", "/readyz", ""); code != 200 {
		t.Errorf("/readyz = %d before the stop", code)
	}
	terminate()
	for end := time.Now().Add(5 * time.Minute); status("GET", "/readyz", "") != 503; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("/readyz does not say that the server leaves")
		}
	}
	if code := status("POST", "/v1/messages", `{"topic":"reminders","payload":1}`); code != 202 {
		t.Errorf("a message while the server leaves = %d, want 202", code)
	}
	select {
	case <-watching:
		t.Error("watching has ended, and requests are still taken")
	default:
	}
	if err := ln.Close(); err != nil { // instead of waiting for an hour
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve() = %v, want that the listener was closed", err)
	}
	for lines.Scan() { // the event stream has ended too, or this would not
	}
}
