package line

import (
	"io"
	"log"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Connect opens a session with a node over the line, in schema.DefaultKeyspace. The
// caller closes it.
func (l *Line) Connect(t testing.TB, node *scyllafake.Server) *gocql.Session {
	t.Helper()
	c := scyllatest.Cluster(node, schema.DefaultKeyspace)
	c.Dialer = Dialer{Line: l, Dial: node.Dial}
	c.NumConns = 1
	c.ReconnectInterval = 0 // nothing is to tick while nothing happens
	c.Consistency = gocql.LocalQuorum
	c.Logger = log.New(io.Discard, "", 0)
	s, err := c.CreateSession()
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return s
}
