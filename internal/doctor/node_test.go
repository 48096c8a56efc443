package doctor

import (
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// startNode starts an embedded node and returns a configuration for it, from YAML, and a function
// that executes statements. Both end with the test.
func startNode(t *testing.T, tokens int, yaml string) (c *app.Config, session *gocql.Session, exec func(stmt string, args ...any)) {
	t.Helper()
	node, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0", Tokens: tokens, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	c, err = parseConfig(t, yaml, nil, "--scylla-hosts", node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if session, err = c.Scylla.Session("system"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return c, session, func(stmt string, args ...any) {
		t.Helper()
		if err := session.Query(stmt, args...).Exec(); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
}
