// Package scyllatest provides a node in memory with the schema, and sessions to it, for
// tests of packages that store data.
//
// It imports schema, so schema's own tests cannot use it; they start a node themselves.
package scyllatest

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// Config returns the configuration of a node that starts fast, of the default release and
// with tablets.
func Config() scyllafake.Config { return scyllafake.Config{Tokens: 4} }

// Versions are the nodes of tests that depend on the release or on the kind of CDC
// generations: one set of streams for all vnodes, or one for each table with tablets. The
// first one is that of all other tests.
var Versions = []struct {
	Name   string
	Config scyllafake.Config
}{
	{"2026.1 with tablets", Config()},
	{"2026.1 with vnodes", scyllafake.Config{Tokens: 4, Vnodes: true}},
	{"5.1", scyllafake.Config{Tokens: 4, Version: "5.1"}},
}

// EachVersion runs a test as a parallel subtest for each of Versions.
func EachVersion(t *testing.T, test func(t *testing.T, conf scyllafake.Config)) {
	t.Helper()
	for _, v := range Versions {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			test(t, v.Config)
		})
	}
}

// Start runs a node with the schema in schema.DefaultKeyspace until the test
// ends, and returns it with a session in that keyspace.
func Start(t testing.TB) (*scyllafake.Server, *gocql.Session) {
	t.Helper()
	return StartOn(t, Config())
}

// StartOn is Start with the configuration of the node.
func StartOn(t testing.TB, conf scyllafake.Config) (*scyllafake.Server, *gocql.Session) {
	t.Helper()
	node := Node(t, conf)
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	return node, Connect(t, node)
}

// Node runs a node with all components of the schema in schema.DefaultKeyspace, with the test's seed if
// conf has none. The caller closes it.
func Node(t testing.TB, conf scyllafake.Config) *scyllafake.Server {
	t.Helper()
	if conf.Seed == 0 {
		conf.Seed = seeds.Of(t)
	}
	node, err := scyllafake.Start(conf)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := Cluster(node, "").CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close(admin)
	if err := schema.Migrate(t.Context(), admin, schema.Options{Components: schema.Components()}); err != nil {
		t.Fatal(err)
	}
	return node
}

// bubbles allows one bubble with a node at a time.
var bubbles sync.Mutex

// Bubble runs f under virtual time (testing/synctest). The driver keeps channels in
// global pools, and one that was made outside of a bubble, or in another one, cannot be
// used in it; two garbage collections empty the pools.
func Bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	bubbles.Lock()
	defer bubbles.Unlock()
	runtime.GC()
	runtime.GC()
	synctest.Test(t, f)
}

// Connect returns a new session in schema.DefaultKeyspace, as of another process, open
// until the test ends.
func Connect(t testing.TB, node *scyllafake.Server) *gocql.Session {
	t.Helper()
	s, err := Cluster(node, schema.DefaultKeyspace).CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sessions.Close(s) })
	return s
}

// Cluster returns the configuration of a client: long timeouts for slow machines, and
// quick reconnection after faults that end connections. keyspace may be empty.
func Cluster(node *scyllafake.Server, keyspace string) *gocql.ClusterConfig {
	c := gocql.NewCluster("127.0.0.1")
	if node != nil {
		c.Dialer = node
	}
	c.ProtoVersion = 4
	c.Timeout, c.ConnectTimeout = time.Minute, time.Minute
	c.Keyspace = keyspace
	c.ReconnectInterval = 100 * time.Millisecond
	c.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 100, Interval: 20 * time.Millisecond}
	return c
}
