package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// A login with only some of its settings is an error: the client would not log in, and the server
// would refuse it or, worse, accept it.
func TestClients_HalfALogin(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"scylla: {password: hush}":                  "scylla.username",
		"kafka: {username: relay}":                  "kafka.sasl",
		"kafka: {password: hush}":                   "kafka.sasl",
		"kafka: {sasl: plain, password: hush}":      "kafka.username",
		"kafka: {sasl: gssapi, username: relay}":    "scram-sha-512",
		"kafka: {sasl: plain, username: relay}":     "",
		"scylla: {username: relay, password: hush}": "",
	} {
		c, err := parseConfig(t, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, kafka := c.Kafka.Options()
		_, scylla := c.Scylla.Cluster("")
		err = errors.Join(kafka, scylla)
		switch {
		case want == "":
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
		case err == nil || !errors.As(err, new(cli.UsageError)) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: %v, want %s named", file, err, want)
		}
	}
}

// A process that waits for the database checks that a host listens before it makes another session,
// and finds the database when it is there.
func TestSessionOnceUp_ChecksForAListener(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	b := setupDLQ(t)
	c, err := parseConfig(t, "", nil, "--scylla-hosts", nobody)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var waited []error
	c.Scylla.Waits = func(err error) {
		if waited = append(waited, err); len(waited) == 2 {
			c.Scylla.Hosts[0] = b.e.CQLAddr // the third time it is there
		}
	}
	s, err := c.Scylla.SessionOnceUp(ctx, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	sessions.Close(s)
	if len(waited) != 2 || !strings.Contains(waited[0].Error(), "session") || !strings.HasSuffix(waited[1].Error(), "connection refused") || cli.FindHint(waited[1]) == "" {
		t.Errorf("it waited because of %q, want a session and a host that refused", waited)
	}
	cancel()
	if err := c.Scylla.Listening(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("listening() when it is to stop: %v", err)
	}
}

// Writes have the database's time: see docs/design/README.md, Clocks and write timestamps.
func TestClocks_SessionsHaveTheDatabasesTime(t *testing.T) {
	t.Parallel()
	c, err := parseConfig(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if cluster, err := c.Scylla.Cluster(""); err != nil || cluster.DefaultTimestamp {
		t.Errorf("cluster() = %+v, %v: the driver would write the time of its host", cluster, err)
	}
}
