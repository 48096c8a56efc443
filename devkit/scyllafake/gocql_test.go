package scyllafake_test

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
)

// startTCP starts a node on a free port.
func startTCP(t testing.TB, change ...func(*scyllafake.Config)) *scyllafake.Server {
	t.Helper()
	cfg := scyllafake.Config{Addr: "127.0.0.1:0", Version: "5.1"}
	for _, f := range change {
		f(&cfg)
	}
	s, err := scyllafake.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// cluster returns a driver's default configuration with the server's port.
func cluster(t testing.TB, s *scyllafake.Server) *gocql.ClusterConfig {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c := gocql.NewCluster(host)
	if c.Port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	return c
}

func session(t testing.TB, c *gocql.ClusterConfig) *gocql.Session {
	t.Helper()
	s, err := c.CreateSession()
	if err != nil {
		t.Fatalf("CreateSession() error = %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

func exec(t testing.TB, s *gocql.Session, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := s.Query(text).Exec(); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

const createKS = "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"

func TestGocql(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		for _, aware := range []bool{false, true} {
			t.Run(fmt.Sprintf("shards=%d,aware=%v", shards, aware), func(t *testing.T) {
				t.Parallel()
				srv := startTCP(t, func(c *scyllafake.Config) {
					c.Shards = shards
					if aware {
						c.ShardAwarePort = -1
					}
				})
				s := session(t, cluster(t, srv))
				exec(t, s, createKS, "CREATE TABLE ks.t (p int, c int, v text, PRIMARY KEY (p, c)) WITH cdc = {'enabled': true}")
				for p := range 5 {
					b := s.Batch(gocql.LoggedBatch)
					for c := range 50 {
						b.Query("INSERT INTO ks.t (p, c, v) VALUES (?, ?, ?)", p, c, fmt.Sprint("v", c))
					}
					if err := s.ExecuteBatch(b); err != nil {
						t.Fatal(err)
					}
				}
				it := s.Query("SELECT p, c, v FROM ks.t").PageSize(7).Iter()
				var p, c, n int
				var v string
				for it.Scan(&p, &c, &v) {
					n++
					if v != fmt.Sprint("v", c) {
						t.Errorf("row %d, %d has %q", p, c, v)
					}
				}
				if err := it.Close(); err != nil || n != 250 {
					t.Errorf("%d rows, error %v; want 250", n, err)
				}
				var log int
				if err := s.Query("SELECT COUNT(*) FROM ks.t_scylla_cdc_log").Scan(&log); err != nil || log != 250 {
					t.Errorf("%d log rows, error %v; want 250", log, err)
				}
				applied, err := s.Query("INSERT INTO ks.t (p, c, v) VALUES (1, 1, 'x') IF NOT EXISTS").MapScanCAS(map[string]any{})
				if err != nil || applied {
					t.Errorf("conditional insert: applied %v, error %v", applied, err)
				}
				// The driver caches the columns of a table and handles an event about a
				// change a second later. Wait for a table, not for all of a keyspace:
				// there the table may be missing from then on.
				for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
					m, err := s.TableMetadata("ks", "t")
					if err == nil && m.Columns["v"].Kind == gocql.ColumnRegular {
						m, err = s.TableMetadata("ks", "t_scylla_cdc_log")
					}
					if err == nil && m.Columns["cdc$time"] != nil {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("metadata = %+v, %v", m, err)
					}
				}
			})
		}
	}
}

// The driver has the connection to each shard that it asks for, over memory too, and
// also while others connect. One to another shard it would give up again.
func TestServer_DialContextReachesTheShardThatIsAskedFor(t *testing.T) {
	t.Parallel()
	const shards = 8
	srv, err := scyllafake.Start(scyllafake.Config{Shards: shards})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	c := gocql.NewCluster("127.0.0.1")
	c.Dialer = amongOthers{t, srv}
	var complaints complaints
	c.Logger = log.New(&complaints, "", 0)
	s := session(t, c)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		var there, excess int
		s.IterateHostPools(func(p gocql.HostPoolInfo) bool {
			there, excess = p.GetConnectionCount(), p.GetExcessConnectionCount()
			return true
		})
		if first := complaints.first.Load(); excess > 0 || first != nil {
			t.Fatalf("%d connections are to shards that have one already; the driver logs %q", excess, *cmp.Or(first, new(string)))
		}
		if there == shards {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d shards have a connection, want %d", there, shards)
		}
	}
}

// complaints keeps the first warning of a driver.
type complaints struct{ first atomic.Pointer[string] }

func (c *complaints) Write(b []byte) (int, error) {
	line := string(b)
	c.first.CompareAndSwap(nil, &line)
	return len(b), nil
}

// amongOthers is a gocql.Dialer that opens another connection before each of its own.
type amongOthers struct {
	t   testing.TB
	srv *scyllafake.Server
}

func (d amongOthers) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	other, err := d.srv.Dial(ctx)
	if err != nil {
		return nil, err
	}
	d.t.Cleanup(func() { other.Close() })
	return d.srv.DialContext(ctx, network, addr)
}

func TestGocql_Compression(t *testing.T) {
	t.Parallel()
	cfg := cluster(t, startTCP(t))
	cfg.Compressor = gocql.SnappyCompressor{}
	s := session(t, cfg)
	exec(t, s, createKS, "CREATE TABLE ks.t (p int PRIMARY KEY, v blob)", "INSERT INTO ks.t (p, v) VALUES (1, 0xcafe)")
	var v []byte
	if err := s.Query("SELECT v FROM ks.t WHERE p = ?", 1).Scan(&v); err != nil || len(v) != 2 {
		t.Errorf("v = %x, error %v", v, err)
	}
}

// Acknowledged writes survive Close, schema included.
func TestServer_Reopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() (*scyllafake.Server, *gocql.Session) {
		srv, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0", Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		s, err := cluster(t, srv).CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		return srv, s
	}
	srv, s := open()
	exec(t, s, createKS,
		"CREATE TABLE ks.t (p int, c timeuuid, st text static, m map<text, int>, gone int, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC) AND cdc = {'enabled': true, 'ttl': 77}",
		"ALTER TABLE ks.t DROP gone",
		"INSERT INTO ks.t (p, c, st, m) VALUES (1, now(), 'st', {'k': 1})",
	)
	dump := func(s *gocql.Session) (out []string) {
		for _, text := range []string{
			"SELECT * FROM system_schema.tables WHERE keyspace_name = 'ks'",
			"SELECT * FROM system_schema.columns WHERE keyspace_name = 'ks'",
			"SELECT * FROM system_schema.dropped_columns WHERE keyspace_name = 'ks'",
			"SELECT * FROM system_schema.indexes WHERE keyspace_name = 'ks'",
			"SELECT * FROM system_schema.types WHERE keyspace_name = 'ks'",
			"SELECT * FROM ks.t", "SELECT p, st, m FROM ks.t_scylla_cdc_log",
			"SELECT host_id, schema_version, tokens FROM system.local",
			"SELECT * FROM system_distributed.cdc_generation_timestamps",
		} {
			rows, err := s.Query(text).Consistency(gocql.One).Iter().SliceMap()
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			out = append(out, fmt.Sprint(text, rows))
		}
		return out
	}
	before := dump(s)
	s.Close()
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	srv, s = open()
	defer srv.Close()
	defer s.Close()
	for i, after := range dump(s) {
		if after != before[i] {
			t.Errorf("before: %s\nafter:  %s", before[i], after)
		}
	}
	exec(t, s, "INSERT INTO ks.t (p, c, m) VALUES (2, now(), {'z': 2})", "ALTER TABLE ks.t ADD more int")
}
