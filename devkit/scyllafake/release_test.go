package scyllafake_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// Statements read at SERIAL and LOCAL_SERIAL: those against the clustering order of
// their table are refused by 2026.1 (recording T3), and never by 5.1.
func TestServer_SerialReadsAgainstTheClusteringOrder(t *testing.T) {
	t.Parallel()
	reads := map[string]bool{ // refused
		"SELECT v FROM ks.up WHERE k = ?":                                   false,
		"SELECT v FROM ks.up WHERE k = ? ORDER BY c ASC LIMIT 1":            false,
		"SELECT v FROM ks.up WHERE k = ? ORDER BY c DESC":                   true,
		"SELECT v FROM ks.up WHERE k = ? ORDER BY c DESC LIMIT 1":           true,
		"SELECT v FROM ks.up WHERE k = ? AND c < 5 ORDER BY c DESC LIMIT 1": true,
		"SELECT v FROM ks.down WHERE k = ?":                                 false,
		"SELECT v FROM ks.down WHERE k = ? ORDER BY c DESC LIMIT 1":         false,
		"SELECT v FROM ks.down WHERE k = ? ORDER BY c ASC":                  true,
	}
	for _, conf := range []scyllafake.Config{{Version: "5.1"}, {Vnodes: true}, {}} {
		t.Run(fmt.Sprintf("%s vnodes %t", conf.Version, conf.Vnodes), func(t *testing.T) {
			t.Parallel()
			s := session(t, cluster(t, startTCP(t, func(c *scyllafake.Config) { c.Version, c.Vnodes = conf.Version, conf.Vnodes })))
			exec(t, s,
				"CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
				"CREATE TABLE ks.up (k int, c int, v int, PRIMARY KEY (k, c))",
				"CREATE TABLE ks.down (k int, c int, v int, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)",
				"INSERT INTO ks.up (k, c, v) VALUES (1, 1, 1)", "INSERT INTO ks.down (k, c, v) VALUES (1, 1, 1)")
			for text, refused := range reads {
				for _, key := range []int{1, 2} { // one partition is empty
					for _, level := range []gocql.Consistency{gocql.Serial, gocql.LocalSerial, gocql.Quorum} {
						for name, q := range map[string]*gocql.Query{
							"prepared": s.Query(text, key),
							"plain":    s.Query(strings.Replace(text, "?", fmt.Sprint(key), 1)),
						} {
							err := q.Consistency(level).Exec()
							if !refused || level == gocql.Quorum || conf.Version == "5.1" {
								if err != nil {
									t.Errorf("%s of %d at %v, %s: %v", text, key, level, name, err)
								}
								continue
							}
							var e *gocql.RequestErrReadTimeout
							if !errors.As(err, &e) || e.Received != 0 || e.BlockFor != 1 || e.Consistency != gocql.Any || e.DataPresent != 0 ||
								!strings.HasSuffix(e.Message, " - received only 0 responses from 1 CL=ANY.") {
								t.Errorf("%s of %d at %v, %s: %v, want the read timeout of the node", text, key, level, name, err)
							}
						}
					}
				}
			}
		})
	}
}

// A read of too few replicas is unavailable; in newer releases that of a count is a server
// error (recording failures.tablets, steps 72 and 110).
func TestRelease_CountOfTooFewReplicas(t *testing.T) {
	for _, version := range []string{"2026.1", "5.1"} {
		t.Run(version, func(t *testing.T) {
			readerBubble(t, scyllafake.Config{Tokens: 4, Version: version, Vnodes: true}, func(t *testing.T, _ *scyllafake.Server, s *gocql.Session) {
				exec(t, s, "CREATE KEYSPACE three WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 3}", "CREATE TABLE three.kv (k int PRIMARY KEY, v int)")
				for statement, counts := range map[string]bool{
					"SELECT count(*) FROM three.kv":             true,
					"SELECT COUNT(*) FROM three.kv WHERE k = 1": true,
					"SELECT v FROM three.kv WHERE k = 1":        false,
					"SELECT k FROM three.kv":                    false,
				} {
					err := s.Query(statement).Consistency(gocql.All).Exec()
					code, text := gocql.ErrCodeUnavailable, "Cannot achieve consistency level for cl ALL. Requires 3, alive 1"
					if counts && version == "2026.1" {
						code, text = gocql.ErrCodeServer, text+": exceptions::unavailable_exception ("+text+")"
					}
					if cqlcode.Of(err) != code || !strings.HasPrefix(err.Error(), text+" (potentially") {
						t.Errorf("%s: %v, want code %04x %q", statement, err, code, text)
					}
				}
			})
		})
	}
}

// With one of two nodes down a logged batch has no batchlog, except at ANY; other writes at
// ONE succeed (recordings failures).
func TestNodes_LoggedBatchNeedsAnotherNode(t *testing.T) {
	t.Parallel()
	srv, err := scyllafake.Start(scyllafake.Config{Nodes: 2, Tokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	c := gocql.NewCluster("127.0.0.1")
	c.Dialer = srv
	c.HostFilter = gocql.WhiteListHostFilter("127.0.0.1")
	s := session(t, c)
	exec(t, s, "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 2}",
		"CREATE TABLE ks.kv (k int PRIMARY KEY, v int)", "CREATE TABLE ks.ev (k int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
	srv.Kill(1)
	batch := func(kind gocql.BatchType, level gocql.Consistency) error {
		b := s.Batch(kind)
		b.SetConsistency(level)
		b.Query("INSERT INTO ks.kv (k, v) VALUES (1, 1)")
		b.Query("INSERT INTO ks.ev (k, v) VALUES (1, 1)")
		return s.ExecuteBatch(b)
	}
	wantUnavailable := func(what string, err error, level gocql.Consistency, required, alive int) {
		t.Helper()
		var e *gocql.RequestErrUnavailable
		if !errors.As(err, &e) || e.Consistency != level || e.Required != required || e.Alive != alive {
			t.Errorf("%s: %v, want %v to require %d of %d", what, err, level, required, alive)
		}
	}
	wantUnavailable("logged batch at ONE", batch(gocql.LoggedBatch, gocql.One), gocql.One, 1, 0)
	wantUnavailable("logged batch at ALL", batch(gocql.LoggedBatch, gocql.All), gocql.One, 1, 0)
	wantUnavailable("unlogged batch at ALL", batch(gocql.UnloggedBatch, gocql.All), gocql.All, 2, 1)
	for what, err := range map[string]error{
		"logged batch at ANY":   batch(gocql.LoggedBatch, gocql.Any),
		"unlogged batch at ONE": batch(gocql.UnloggedBatch, gocql.One),
		"INSERT at ONE":         s.Query("INSERT INTO ks.ev (k, v) VALUES (3, 3)").Consistency(gocql.One).Exec(),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
