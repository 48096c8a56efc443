package app

import (
	"context"
	"log/slog"
	"net"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// A broker that refuses connections and a database that closes them are in the log of a
// service as records with the component and the error.
func TestObserve_LogsTheClientsErrors(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	if err := ln.Close(); err != nil { // connections are refused
		t.Fatal(err)
	}
	node, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0", Tokens: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() }) // a second time
	c, err := parseConfig(t, "", nil, "--scylla-hosts", node.Addr(), "--kafka-seeds", closed)
	if err != nil {
		t.Fatal(err)
	}
	var log logtest.Buffer
	c.Observe(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))

	session, err := c.Scylla.Session("")
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close(session)
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	client, err := c.Kafka.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if client.Ping(ctx) == nil {
		t.Error("a closed port is a broker")
	}
	for _, component := range []string{"scylla-client", "kafka-client"} {
		line := regexp.MustCompile("(?m)^.* level=WARN .* component=" + component + " .*err=.*$")
		for end := time.Now().Add(time.Minute); !line.MatchString(log.String()); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no warning of %s in\n%s", component, log.String())
			}
		}
	}
}
