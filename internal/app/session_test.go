package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
)

// A database that is there and has no keyspace is waited for like one that is away; the fix is
// reported all the same.
func TestSession_NamesTheFixWhileItWaits(t *testing.T) {
	t.Parallel()
	node, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0", Tokens: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	c, err := parseConfig(t, "", nil, "--scylla-hosts", node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log logtest.Buffer
	var w OpsServer
	c.Scylla.Waits = func(err error) { w.waits(err); stop() }
	if _, err := c.Scylla.SessionOnceUp(ctx, c.Scylla.Keyspace, slog.New(slog.NewTextHandler(&log, nil))); err == nil {
		t.Fatal("sessionOnceUp() has a session without a keyspace")
	}
	for where, text := range map[string]string{"/readyz": w.problem(), "the log": log.String()} {
		if !strings.Contains(text, "keyspace outbox does not exist") || !strings.Contains(text, "outbox schema migrate creates it") {
			t.Errorf("%s says %q, want what is missing and what makes it", where, text)
		}
	}
	if strings.Contains(log.String(), "not reachable") {
		t.Errorf("the log says of a database that answers: %s", log.String())
	}
}

// A wrong data centre of the client is no host that is away: the hint names the setting.
func TestSession_NamesTheDataCentre(t *testing.T) {
	t.Parallel()
	node, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0", Tokens: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	c, err := parseConfig(t, "", nil, "--scylla-hosts", node.Addr(), "--scylla-local-dc", "dc9")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Scylla.Session("")
	if hint := cli.FindHint(err); err == nil || !strings.Contains(hint, `scylla.local_dc "dc9" is one of its data centers`) {
		t.Errorf("with a data centre that is none of the cluster's, the error is %v, its hint %q", err, hint)
	}
}
