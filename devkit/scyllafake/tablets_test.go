package scyllafake_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// onTablets runs f in virtual time with a session to a node of 2026.1 with tablets.
func onTablets(t *testing.T, conf scyllafake.Config, f func(t *testing.T, srv *scyllafake.Server, s *gocql.Session)) {
	conf.Tokens = 4
	readerBubble(t, conf, f)
}

// generations returns the starts of a table's generations, newest first, and the number
// of streams of each.
func generations(t *testing.T, s *gocql.Session, table string) (starts []time.Time, streams []int) {
	t.Helper()
	it := s.Query("SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = 'ks' AND table_name = ?", table).Iter()
	for at := (time.Time{}); it.Scan(&at); {
		starts = append(starts, at)
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	for _, at := range starts {
		var n int
		if err := s.Query("SELECT count(*) FROM system.cdc_streams WHERE keyspace_name = 'ks' AND table_name = ? AND timestamp = ? AND stream_state = 0", table, at).Scan(&n); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, n)
	}
	return starts, streams
}

// The number of tablets of a new table (recordings T1.counts, T1.2shards, T1.initial).
func TestTablets_Counts(t *testing.T) {
	for _, tt := range []struct {
		shards, nodes int
		initial       string
		options       string
		want          int
	}{
		{shards: 1, want: 16},
		{shards: 2, want: 32},
		{shards: 1, nodes: 2, want: 32},
		{shards: 1, initial: "4", want: 4},
		{shards: 1, options: "'min_tablet_count': 1", want: 1},
		{shards: 1, options: "'min_tablet_count': 3", want: 4},
		{shards: 2, options: "'min_tablet_count': 2", want: 2},
		{shards: 1, options: "'expected_data_size_in_gb': 100", want: 32},
		{shards: 1, options: "'min_per_shard_tablet_count': 4", want: 4},
		{shards: 1, options: "'min_tablet_count': 'x'", want: 16},
	} {
		t.Run(fmt.Sprintf("%d shards, %d nodes, initial %s, %s", tt.shards, tt.nodes, tt.initial, tt.options), func(t *testing.T) {
			onTablets(t, scyllafake.Config{Shards: tt.shards}, func(t *testing.T, srv *scyllafake.Server, s *gocql.Session) {
				if tt.nodes > 0 {
					srv.SetNodes(tt.nodes)
				}
				if tt.initial != "" {
					exec(t, s, "DROP KEYSPACE ks", createKS+" AND tablets = {'initial': "+tt.initial+"}")
				}
				with := "cdc = {'enabled': true}"
				if tt.options != "" {
					with += " AND tablets = {" + tt.options + "}"
				}
				exec(t, s, "CREATE TABLE ks.counted (k int PRIMARY KEY, v int) WITH "+with)
				if _, streams := generations(t, s, "counted"); !slices.Equal(streams, []int{tt.want}) {
					t.Errorf("%v streams, want %d", streams, tt.want)
				}
			})
		})
	}
}

// Every table of a keyspace with many tables has few tablets, whatever its options.
func TestTablets_ManyTablesHaveFewEach(t *testing.T) {
	onTablets(t, scyllafake.Config{}, func(t *testing.T, _ *scyllafake.Server, s *gocql.Session) {
		exec(t, s, "CREATE TABLE ks.first (k int PRIMARY KEY) WITH cdc = {'enabled': true} AND tablets = {'min_tablet_count': 8}")
		for i := range 60 {
			exec(t, s, fmt.Sprintf("CREATE TABLE ks.t%d (k int PRIMARY KEY)", i))
		}
		exec(t, s, "CREATE TABLE ks.last (k int PRIMARY KEY) WITH cdc = {'enabled': true}")
		if _, streams := generations(t, s, "last"); !slices.Equal(streams, []int{2}) {
			t.Errorf("%v streams of the last table, want 2", streams)
		}
		time.Sleep(5 * time.Minute)
		if _, streams := generations(t, s, "first"); !slices.Equal(streams, []int{2, 4, 8}) {
			t.Errorf("%v streams of the first table, want merges to 2", streams)
		}
	})
}

// ALTER TABLE splits and merges step by step, one generation a step (recording
// T2.double): from one tablet to eight, three are pending at a time.
func TestTablets_AlterSplitsAndMerges(t *testing.T) {
	onTablets(t, scyllafake.Config{RingDelay: time.Second}, func(t *testing.T, _ *scyllafake.Server, s *gocql.Session) {
		exec(t, s, "CREATE TABLE ks.a (k int PRIMARY KEY, v int) WITH cdc = {'enabled': true} AND tablets = {'min_tablet_count': 1}")
		created := time.Now()
		exec(t, s, "ALTER TABLE ks.a WITH tablets = {'min_tablet_count': 8}")
		if starts, streams := generations(t, s, "a"); len(streams) != 1 || created.Sub(starts[0]) < 5*time.Second {
			t.Fatalf("generations from %v with %v streams, want one from 5 s ago", starts, streams)
		}
		time.Sleep(time.Minute + 5*time.Second)
		starts, streams := generations(t, s, "a")
		if !slices.Equal(streams, []int{8, 4, 2, 1}) {
			t.Fatalf("%v streams, want 8 4 2 1", streams)
		}
		if !starts[2].After(time.Now()) || starts[0].Sub(starts[1]) > 2*time.Second {
			t.Errorf("generations from %v, want three pending, 1.9 s apart, at %v", starts, time.Now())
		}
		exec(t, s, "ALTER TABLE ks.a WITH tablets = {'min_tablet_count': 4}")
		time.Sleep(2 * time.Minute)
		if _, streams := generations(t, s, "a"); !slices.Equal(streams, []int{4, 8, 4, 2, 1}) {
			t.Errorf("%v streams, want a merge to 4", streams)
		}
	})
}

// A node that joins or leaves changes the tablets of tables without options (recording
// T6).
func TestTablets_FollowNodes(t *testing.T) {
	onTablets(t, scyllafake.Config{}, func(t *testing.T, srv *scyllafake.Server, s *gocql.Session) {
		exec(t, s, "CREATE TABLE ks.plain (k int PRIMARY KEY) WITH cdc = {'enabled': true}",
			"CREATE TABLE ks.fixed (k int PRIMARY KEY) WITH cdc = {'enabled': true} AND tablets = {'min_tablet_count': 2}")
		for _, step := range []func(){
			func() { srv.SetNodes(2) },
			func() { srv.SetNodes(1) },
		} {
			step()
			time.Sleep(2 * time.Minute)
		}
		if _, streams := generations(t, s, "plain"); !slices.Equal(streams, []int{16, 32, 16}) {
			t.Errorf("%v streams, want 16 32 16", streams)
		}
		if _, streams := generations(t, s, "fixed"); !slices.Equal(streams, []int{2}) {
			t.Errorf("%v streams of a table with min_tablet_count, want 2", streams)
		}
	})
}

// Generations that are closed for longer than the ttl of the log disappear, and with
// them the streams for writes of their time (recording T2.ttl).
func TestTablets_ClosedGenerationsExpire(t *testing.T) {
	onTablets(t, scyllafake.Config{}, func(t *testing.T, srv *scyllafake.Server, s *gocql.Session) {
		exec(t, s, "CREATE TABLE ks.short (k int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 10} AND tablets = {'min_tablet_count': 1}")
		created := time.Now()
		time.Sleep(time.Second)
		exec(t, s, "ALTER TABLE ks.short WITH tablets = {'min_tablet_count': 2}")
		srv.BalanceTablets()
		if _, streams := generations(t, s, "short"); !slices.Equal(streams, []int{2, 1}) {
			t.Fatalf("%v streams, want 2 1", streams)
		}
		write := "INSERT INTO ks.short (k, v) VALUES (1, 1) USING TIMESTAMP " + fmt.Sprint(created.UnixMicro())
		exec(t, s, write)
		time.Sleep(2 * time.Minute)
		if _, streams := generations(t, s, "short"); !slices.Equal(streams, []int{2}) {
			t.Errorf("%v streams, want 2 alone", streams)
		}
		if err := s.Query(write).Exec(); cqlcode.Of(err) != 0 {
			t.Errorf("a write to streams that are removed: %v, want server error 0000", err)
		}
	})
}

// The errors of the option tablets (recordings T1.counts, T4.errors).
func TestTablets_OptionErrors(t *testing.T) {
	onTablets(t, scyllafake.Config{}, func(t *testing.T, _ *scyllafake.Server, s *gocql.Session) {
		exec(t, s, "CREATE KEYSPACE vnodes WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}",
			"CREATE TABLE vnodes.t (k int PRIMARY KEY)", "CREATE TABLE ks.opt (k int PRIMARY KEY) WITH tablets = {'min_tablet_count': 4}")
		for text, want := range map[string]struct {
			code    int
			message string
		}{
			"CREATE TABLE ks.x (k int PRIMARY KEY) WITH tablets = {'max_tablet_count': 4}":     {0x2000, "Unknown tablet hint 'max_tablet_count'"},
			"CREATE TABLE ks.x (k int PRIMARY KEY) WITH tablets = {'min_tablet_count': -1}":    {0x2300, "Invalid value '-1' for min_tablet_count"},
			"CREATE TABLE vnodes.x (k int PRIMARY KEY) WITH tablets = {'min_tablet_count': 1}": {0x2300, "tablet options cannot be used when tablets are disabled for the keyspace"},
			"ALTER TABLE vnodes.t WITH tablets = {'min_tablet_count': 1}":                      {0x2300, "tablet options cannot be used when tablets are disabled for the keyspace"},
			"ALTER TABLE ks.opt WITH tablets = {'nosuch': 1}":                                  {0x2000, "Unknown tablet hint 'nosuch'"},
		} {
			if err := s.Query(text).Exec(); cqlcode.Of(err) != want.code || !strings.HasPrefix(err.Error(), want.message) {
				t.Errorf("%s: %v, want %04x %s", text, err, want.code, want.message)
			}
		}
		options := func() (m map[string]string) {
			t.Helper()
			if err := s.Query("SELECT tablets FROM system_schema.scylla_tables WHERE keyspace_name = 'ks' AND table_name = 'opt'").Scan(&m); err != nil {
				t.Fatal(err)
			}
			return m
		}
		if got := options(); len(got) != 1 || got["min_tablet_count"] != "4" {
			t.Errorf("scylla_tables.tablets = %v, want min_tablet_count 4", got)
		}
		exec(t, s, "ALTER TABLE ks.opt WITH tablets = {}")
		if got := options(); len(got) != 0 {
			t.Errorf("scylla_tables.tablets = %v, want none", got)
		}
	})
}

// The first conditional statement or serial read of a table makes NAME$paxos beside it
// (recordings T3.lwt, Tcrash.paxos), and only that.
func TestTablets_PaxosTables(t *testing.T) {
	const cond = "INSERT INTO ks.base (k, v) VALUES (1, 1) IF NOT EXISTS"
	for _, tt := range []struct {
		name       string
		statement  string
		level      gocql.Consistency
		vnodes     bool
		version    string
		wantsTable bool
	}{
		{name: "conditional insert", statement: cond, wantsTable: true},
		{name: "conditional update", statement: "UPDATE ks.base SET v = 2 WHERE k = 1 IF v = 1", wantsTable: true},
		{name: "conditional delete", statement: "DELETE FROM ks.base WHERE k = 1 IF EXISTS", wantsTable: true},
		{name: "conditional batch", statement: "BEGIN BATCH INSERT INTO ks.base (k, v) VALUES (1, 1) IF NOT EXISTS; APPLY BATCH", wantsTable: true},
		{name: "serial read", statement: "SELECT v FROM ks.base WHERE k = 1", level: gocql.Serial, wantsTable: true},
		{name: "local serial read", statement: "SELECT v FROM ks.base WHERE k = 1", level: gocql.LocalSerial, wantsTable: true},
		{name: "insert", statement: "INSERT INTO ks.base (k, v) VALUES (1, 1)"},
		{name: "read", statement: "SELECT v FROM ks.base WHERE k = 1"},
		{name: "vnodes", statement: cond, vnodes: true},
		{name: "5.1", statement: cond, version: "5.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			readerBubble(t, scyllafake.Config{Tokens: 4, Vnodes: tt.vnodes, Version: tt.version}, func(t *testing.T, srv *scyllafake.Server, s *gocql.Session) {
				exec(t, s, "CREATE TABLE ks.base (k int PRIMARY KEY, v int) WITH cdc = {'enabled': true}", "CREATE TABLE ks.other (k int PRIMARY KEY)")
				before := tableNames(t, s)
				level := tt.level
				if level == gocql.Any {
					level = gocql.Quorum
				}
				for range 2 {
					if err := s.Query(tt.statement).Consistency(level).Exec(); err != nil {
						t.Fatal(err)
					}
				}
				want := slices.Clone(before)
				if tt.wantsTable {
					want = append(want, "base$paxos")
					slices.Sort(want)
				}
				if got := tableNames(t, s); !slices.Equal(got, want) {
					t.Errorf("tables %v, want %v", got, want)
				}
			})
		})
	}
}

// A table NAME$paxos refuses clients, goes with its base, and leaves the tablets of other
// tables alone.
func TestTablets_PaxosTableOfClients(t *testing.T) {
	onTablets(t, scyllafake.Config{}, func(t *testing.T, srv *scyllafake.Server, s *gocql.Session) {
		exec(t, s, "DROP TABLE ks.t", "CREATE TABLE ks.base (k int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
		_, streams := generations(t, s, "base")
		exec(t, s, "INSERT INTO ks.base (k, v) VALUES (1, 1) IF NOT EXISTS")
		for statement, want := range map[string]string{
			`SELECT * FROM ks."base$paxos"`:                                   "Role  doesn't exist.",
			`SELECT row_key FROM ks."base$paxos" LIMIT 1`:                     "Role  doesn't exist.",
			`INSERT INTO ks."base$paxos" (row_key) VALUES (0x01)`:             "Role  doesn't exist.",
			`UPDATE ks."base$paxos" SET promise = now() WHERE row_key = 0x01`: "Role  doesn't exist.",
			`DELETE FROM ks."base$paxos" WHERE row_key = 0x01`:                "Role  doesn't exist.",
			`TRUNCATE ks."base$paxos"`:                                        "Role  doesn't exist.",
			`ALTER TABLE ks."base$paxos" WITH comment = 'x'`:                  "Cannot ALTER <table ks.base$paxos>",
			`DROP TABLE ks."base$paxos"`:                                      "Cannot DROP <table ks.base$paxos>",
		} {
			if err := s.Query(statement).Exec(); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", statement, err, want)
			}
		}
		srv.BalanceTablets()
		if _, now := generations(t, s, "base"); !slices.Equal(now, streams) {
			t.Errorf("streams %v, were %v", now, streams)
		}
		exec(t, s, "DROP TABLE ks.base")
		if got := tableNames(t, s); len(got) != 0 {
			t.Errorf("after DROP TABLE: %v", got)
		}
		exec(t, s, "CREATE TABLE ks.base (k int PRIMARY KEY, v int)")
		if got := tableNames(t, s); !slices.Equal(got, []string{"base"}) {
			t.Errorf("made again: %v", got)
		}
		exec(t, s, "INSERT INTO ks.base (k, v) VALUES (1, 1) IF NOT EXISTS", "DROP KEYSPACE ks", createKS)
		if got := tableNames(t, s); len(got) != 0 {
			t.Errorf("after DROP KEYSPACE: %v", got)
		}
	})
}

// tableNames returns the names of the tables of keyspace ks, sorted.
func tableNames(t *testing.T, s *gocql.Session) (out []string) {
	t.Helper()
	it := s.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'").Iter()
	for name := ""; it.Scan(&name); {
		out = append(out, name)
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}
