package scyllafake_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
)

// A statement that a driver sends to a node or shard without the tablet gets the payload; from then
// on the driver sends the statements of the tablet to the right one, which gets none.
func TestRouting_DriverLearnsTablets(t *testing.T) {
	t.Parallel()
	for _, conf := range []scyllafake.Config{{Shards: 3}, {Nodes: 3}, {Nodes: 3, Shards: 2}} {
		t.Run(fmt.Sprintf("%d nodes, %d shards", conf.Nodes, conf.Shards), func(t *testing.T) {
			t.Parallel()
			srv, err := scyllafake.Start(conf)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = srv.Close() })
			c := gocql.NewCluster("127.0.0.1")
			c.Dialer = srv
			c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
			s := session(t, c)
			exec(t, s, createKS,
				"CREATE TABLE ks.t (k int PRIMARY KEY, v int) WITH cdc = {'enabled': true}",
				"CREATE TABLE ks.plain (k int PRIMARY KEY, v int)",
				"CREATE KEYSPACE vnodes WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}",
				"CREATE TABLE vnodes.t (k int PRIMARY KEY, v int)")
			for _, text := range []string{
				"INSERT INTO ks.t (k, v) VALUES (?, 1)", "SELECT v FROM ks.t WHERE k = ?", "UPDATE ks.t SET v = 2 WHERE k = ? IF EXISTS",
				"INSERT INTO ks.plain (k, v) VALUES (?, 1)",
			} {
				first := payloads(t, s, text)
				if text == "INSERT INTO ks.t (k, v) VALUES (?, 1)" && first == 0 {
					t.Errorf("%s: no statement got the payload", text)
				}
				// The driver adds the tablets of the payload a little later.
				for deadline := time.Now().Add(time.Minute); payloads(t, s, text) > 0; {
					if time.Now().After(deadline) {
						t.Fatalf("%s: the driver still sends statements to the wrong node or shard", text)
					}
				}
			}
			if n := payloads(t, s, "INSERT INTO vnodes.t (k, v) VALUES (?, 1)"); n > 0 {
				t.Errorf("%d payloads in a keyspace without tablets", n)
			}
		})
	}
}

// payloads executes a statement for 100 keys and returns how many got the payload.
func payloads(t *testing.T, s *gocql.Session, text string) (n int) {
	t.Helper()
	for k := range 100 {
		it := s.Query(text, k).Iter()
		if len(it.GetCustomPayload()["tablets-routing-v1"]) > 0 {
			n++
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
