package schema

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
)

// start runs an in-memory node and returns it with a session without keyspace.
//
// Most tests run in real time: gocql keeps wait groups in a pool of the
// process, so only one testing/synctest bubble in a process can use it.
// virtually runs it.
func start(t *testing.T, cfg scyllafake.Config) (*scyllafake.Server, *gocql.Session) {
	t.Helper()
	cfg.Tokens = 4
	srv, err := scyllafake.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv, connect(t, srv)
}

func connect(t *testing.T, srv *scyllafake.Server) *gocql.Session {
	t.Helper()
	c := gocql.NewCluster("127.0.0.1")
	c.Dialer = srv
	c.ProtoVersion = 4
	c.Timeout, c.ConnectTimeout = time.Minute, time.Minute
	s, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// createdTables returns the tables of a keyspace without ScyllaDB's own, sorted.
func createdTables(t *testing.T, s *gocql.Session, keyspace string) (out []string) {
	t.Helper()
	all, err := tables(t.Context(), s, keyspace)
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		if !strings.HasSuffix(name, "_scylla_cdc_log") && !strings.HasSuffix(name, "$paxos") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
