package ddl

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// fixture is a catalog on a store of its own.
type fixture struct {
	*Catalog
	t   *testing.T
	dir string
}

func setup(t *testing.T, version string) *fixture {
	t.Helper()
	return reopen(t, version, "")
}

func reopen(t *testing.T, version, dir string) *fixture {
	t.Helper()
	return open(t, version, dir, nil)
}

// open opens the catalog in dir, in memory if that is "", with the clock of its node.
func open(t *testing.T, version, dir string, clock store.Clock) *fixture {
	t.Helper()
	v, err := catalog.ParseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	top, err := topology.Open(st, topology.Options{Tokens: 4, Version: v})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(Options{Store: st, Topology: top, Version: v, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{Catalog: c, t: t, dir: dir}
}

// stoppedClock is the clock of a node at one time.
type stoppedClock struct{ at time.Time }

func (c stoppedClock) Now() time.Time { return c.at }

// The ids of a table and its log have the time of the node's clock, as the rows of
// system_schema do, and differ.
func TestTableIDs_HaveTheNodesTime(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		at := time.Now().Add(off).Truncate(time.Second)
		b := open(t, "2026.1", "", stoppedClock{at})
		b.exec(createKS, createBase)
		ids := make(map[uuid.UUID]string)
		for name, table := range b.Schema().Keyspaces["ks"].Tables {
			if other, ok := ids[table.ID]; ok {
				t.Errorf("tables %s and %s have one id", name, other)
			}
			ids[table.ID] = name
			sec, nsec := table.ID.Time().UnixTime()
			if table.ID.Version() != 1 || time.Unix(sec, nsec).Sub(at).Abs() > time.Millisecond {
				t.Errorf("id %s of table %s has the time %s, want %s", table.ID, name, time.Unix(sec, nsec), at)
			}
		}
		if len(ids) != 2 {
			t.Errorf("%d tables, want the table and its log", len(ids))
		}
	}
}

// exec runs statements that have to succeed and returns the last one's result.
func (b *fixture) exec(statements ...string) *Result {
	b.t.Helper()
	var res *Result
	for _, text := range statements {
		var err error
		if res, err = b.try(text); err != nil {
			b.t.Fatalf("%s: %v", text, err)
		}
	}
	return res
}

// refusal is a statement and the error that it ends with.
type refusal struct {
	text string
	code cqlerr.Code
	want string
}

// refuses holds statements to their errors, and to changing nothing.
func (b *fixture) refuses(all []refusal) {
	b.t.Helper()
	before := b.Schema()
	for _, tt := range all {
		_, err := b.try(tt.text)
		var ce *cqlerr.Error
		if !errors.As(err, &ce) {
			b.t.Errorf("%s: error = %v, want %04x %s", tt.text, err, tt.code, tt.want)
			continue
		}
		if ce.Code != tt.code || ce.Message != tt.want {
			b.t.Errorf("%s:\n got %04x %s\nwant %04x %s", tt.text, ce.Code, ce.Message, tt.code, tt.want)
		}
	}
	if b.Schema() != before {
		b.t.Error("a refused statement has changed the schema")
	}
}

func (b *fixture) try(text string) (*Result, error) {
	b.t.Helper()
	stmt, err := cql.Parse(text)
	if err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
	return b.Execute("", stmt)
}

const (
	createKS    = "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
	createBase  = "CREATE TABLE ks.base (pk int, ck int, s text static, a int, b text, PRIMARY KEY (pk, ck)) WITH CLUSTERING ORDER BY (ck DESC) AND cdc = {'enabled': true}"
	createPlain = "CREATE TABLE ks.plain (pk int, ck int, s int static, v int, w text, PRIMARY KEY (pk, ck))"
)

// The messages match a real node (recordings B1-B6, E2, E13, F4).
func TestExecute_Refusals(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS, createBase, createPlain,
		"CREATE TABLE ks.o9_scylla_cdc_log (k int PRIMARY KEY)",
	)
	b.refuses([]refusal{
		{createKS, cqlerr.AlreadyExists, `Cannot add existing keyspace "ks"`},
		{"CREATE KEYSPACE k2 WITH replication = {'class': 'NoSuch', 'replication_factor': 1}", cqlerr.Config, "unable to find class 'NoSuch'"},
		{"CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy'}", cqlerr.Config, "SimpleStrategy requires a replication_factor strategy option."},
		{"CREATE KEYSPACE k2 WITH replication = {'class': 'NetworkTopologyStrategy', 'nosuchdc': 1}", cqlerr.Config, "Unrecognized strategy option {nosuchdc} passed to org.apache.cassandra.locator.NetworkTopologyStrategy for keyspace k2"},
		{"CREATE KEYSPACE a23456789012345678901234567890123456789012345678901 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", cqlerr.Invalid, `Keyspace names shouldn't be more than 48 characters long (got "a23456789012345678901234567890123456789012345678901")`},
		{"CREATE KEYSPACE system WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", cqlerr.Invalid, "system keyspace is not user-modifiable"},
		{"DROP KEYSPACE system", cqlerr.Unauthorized, "system keyspace is not user-modifiable."},
		{"DROP KEYSPACE k2", cqlerr.Config, "Cannot drop non existing keyspace 'k2'."},
		{"CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}", cqlerr.Syntax, "Unknown property 'tablets'"},

		{createPlain, cqlerr.AlreadyExists, `Cannot add already existing table "plain" to keyspace "ks"`},
		{"CREATE TABLE nosuch.t1 (a int PRIMARY KEY)", cqlerr.Config, "Cannot add table 't1' to non existing keyspace 'nosuch'."},
		{"CREATE TABLE ks.t2 (a int)", cqlerr.Invalid, "No PRIMARY KEY specified (exactly one required)"},
		{"CREATE TABLE ks.t2 (a int PRIMARY KEY, a int)", cqlerr.Invalid, "Multiple definition of identifier a"},
		{"CREATE TABLE ks.t2 (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (a DESC)", cqlerr.Invalid, "Missing CLUSTERING ORDER for column b"},
		{"CREATE TABLE ks.t2 (a int, b int, c int, PRIMARY KEY (a, b, c)) WITH CLUSTERING ORDER BY (c DESC)", cqlerr.Invalid, "Missing CLUSTERING ORDER for column b"},
		{"CREATE TABLE ks.t2 (a int PRIMARY KEY) WITH default_time_to_live = -1", cqlerr.Config, "default_time_to_live cannot be smaller than 0, (default 0)"},
		{"CREATE TABLE ks.t2 (a int PRIMARY KEY) WITH nosuch = 1", cqlerr.Syntax, "Unknown property 'nosuch'"},
		{"CREATE TABLE ks.t2 (a int PRIMARY KEY) WITH compaction = {'class': 'NoSuch'}", cqlerr.Config, "Unable to find compaction strategy class 'NoSuch'"},
		{"CREATE TABLE ks.t2 (a int PRIMARY KEY, s int static)", cqlerr.Invalid, "Static columns are only useful (and thus allowed) if the table has at least one clustering column"},
		{"CREATE TABLE ks.t2 (a list<int> PRIMARY KEY)", cqlerr.Invalid, "Invalid non-frozen collection type for PRIMARY KEY component a"},
		{"CREATE TABLE ks.t2 (a duration PRIMARY KEY)", cqlerr.Invalid, "duration type is not supported for PRIMARY KEY part a"},
		{"CREATE TABLE ks.t2 (a int PRIMARY KEY, b list<list<int>>)", cqlerr.Invalid, "Non-frozen user types or collections are not allowed inside collections: list<list<int>>"},
		{"CREATE TABLE ks.t2 (a int PRIMARY KEY, b set<duration>)", cqlerr.Invalid, "Durations are not allowed inside sets: set<duration>"},
		{"CREATE TABLE ks.t2 (a int, b int, PRIMARY KEY (a, c))", cqlerr.Invalid, "Unknown definition c referenced in PRIMARY KEY"},
		{`CREATE TABLE ks."t-2" (a int PRIMARY KEY)`, cqlerr.Invalid, `"t-2" is not a valid table name (must be alphanumeric character only: [0-9A-Za-z]+)`},
		{"CREATE TABLE noks (a int PRIMARY KEY)", cqlerr.Invalid, "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename"},
		{"CREATE TABLE system.t (a int PRIMARY KEY)", cqlerr.Unauthorized, "system keyspace is not user-modifiable."},
		{"CREATE TABLE ks.t2 (a int PRIMARY KEY, b counter)", cqlerr.Invalid, "scyllafake does not support counters"},
		{"CREATE TABLE ks.t2 (a int PRIMARY KEY, b int) WITH COMPACT STORAGE", cqlerr.Invalid, "scyllafake does not support COMPACT STORAGE"},
		{"DROP TABLE ks.t1", cqlerr.Invalid, "unconfigured table t1"},
		{"DROP TABLE nosuch.t1", cqlerr.Invalid, "Keyspace nosuch does not exist"},
		{"TRUNCATE ks.nosuch", cqlerr.Invalid, "unconfigured table nosuch"},

		{"ALTER TABLE ks.plain ADD v int", cqlerr.Invalid, "Invalid column name v because it conflicts with an existing column"},
		{"ALTER TABLE ks.plain DROP nosuch", cqlerr.Invalid, "Column nosuch was not found in table plain"},
		{"ALTER TABLE ks.plain DROP pk", cqlerr.Invalid, "Cannot drop PRIMARY KEY part pk"},
		{"ALTER TABLE ks.plain WITH nosuch = 30", cqlerr.Syntax, "Unknown property 'nosuch'"},
		{"ALTER TABLE ks.nosuch ADD x int", cqlerr.Invalid, "unconfigured table nosuch"},
		{"ALTER TABLE nosuch.t ADD x int", cqlerr.Invalid, "Keyspace nosuch does not exist"},

		{"CREATE TABLE ks.o2 (k int PRIMARY KEY) WITH cdc = {'enabled': 'maybe'}", cqlerr.Config, `Invalid value for CDC option "enabled": maybe`},
		{"CREATE TABLE ks.o3 (k int PRIMARY KEY) WITH cdc = {'enabled': true, 'nosuch': 1}", cqlerr.Config, "Invalid CDC option: nosuch"},
		{"CREATE TABLE ks.o4 (k int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': -1}", cqlerr.Config, "Invalid CDC option: ttl must be >= 0"},
		{"CREATE TABLE ks.o4 (k int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 'x'}", cqlerr.Config, `Invalid value for CDC option "ttl": x`},
		{"CREATE TABLE ks.o4 (k int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 99999999999}", cqlerr.Config, "Invalid CDC option: ttl too large"},
		{"CREATE TABLE ks.o5 (k int PRIMARY KEY) WITH cdc = {'enabled': true, 'delta': 'off'}", cqlerr.Config, `Invalid value for CDC option "delta": off`},
		{"CREATE TABLE ks.o6 (k int PRIMARY KEY) WITH cdc = true", cqlerr.Server, "Cannot create cdc info from string"},
		{"CREATE TABLE ks.o9 (k int PRIMARY KEY) WITH cdc = {'enabled': true}", cqlerr.Invalid, "Cannot create CDC log table for table ks.o9 because a table of name ks.o9_scylla_cdc_log already exists"},
		{"ALTER TABLE ks.base_scylla_cdc_log WITH cdc = {'enabled': true}", cqlerr.Invalid, "Cannot create a CDC log for a table ks.base_scylla_cdc_log, because creating nested CDC logs is not allowed"},
		{"ALTER TABLE ks.base WITH cdc = {'ttl': 7}", cqlerr.Invalid, `Altering CDC options requires specyfing "enabled" flag`},
		{"DROP TABLE ks.base_scylla_cdc_log", cqlerr.Unauthorized, "Cannot DROP cdc log table <table ks.base_scylla_cdc_log>"},

		{"DROP TABLE system_distributed.cdc_generation_timestamps", cqlerr.Unauthorized, "Cannot DROP <table system_distributed.cdc_generation_timestamps>"},
		{"ALTER TABLE system_distributed.cdc_streams_descriptions_v2 ADD x int", cqlerr.Unauthorized, "Cannot ALTER <table system_distributed.cdc_streams_descriptions_v2>"},
		{"DROP KEYSPACE system_schema", cqlerr.Unauthorized, "system_schema keyspace is not user-modifiable."},
	})
}

// Events and results are in the order of recordings B1-B8 and E15.
func TestExecute_Events(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.events([]step{
		{createKS, "CREATED KEYSPACE ks"},
		{strings.Replace(createKS, "KEYSPACE", "KEYSPACE IF NOT EXISTS", 1), ""},
		{"CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c)) WITH cdc = {'enabled': true}", "CREATED TABLE t; CREATED TABLE t_scylla_cdc_log"},
		{"ALTER TABLE ks.t ADD n int", "UPDATED TABLE t; UPDATED TABLE t_scylla_cdc_log"},
		{"ALTER TABLE ks.t WITH gc_grace_seconds = 5", "UPDATED TABLE t; UPDATED TABLE t_scylla_cdc_log"},
		{"ALTER TABLE ks.t WITH comment = 'x'", "UPDATED TABLE t; UPDATED TABLE t_scylla_cdc_log"},
		{"ALTER TABLE ks.t WITH cdc = {'enabled': false}", "UPDATED TABLE t"},
		{"ALTER TABLE ks.t ADD late int", "UPDATED TABLE t"},
		{"ALTER TABLE ks.t WITH cdc = {'enabled': true}", "UPDATED TABLE t; UPDATED TABLE t_scylla_cdc_log"},
		{"ALTER TABLE ks.t WITH cdc = {'enabled': false}", "UPDATED TABLE t"},
		{"DROP TABLE ks.t_scylla_cdc_log", "DROPPED TABLE t_scylla_cdc_log"},
		{"ALTER TABLE ks.t WITH cdc = {'enabled': true}", "CREATED TABLE t_scylla_cdc_log; UPDATED TABLE t"},
		{"ALTER TABLE ks.t WITH cdc = {'enabled': false}", "UPDATED TABLE t"},
		{"DROP TABLE ks.t", "DROPPED TABLE t; DROPPED TABLE t_scylla_cdc_log"},
		{"CREATE TABLE ks.t2 (p int PRIMARY KEY, v int) WITH cdc = {'enabled': true}", "CREATED TABLE t2; CREATED TABLE t2_scylla_cdc_log"},
		{"TRUNCATE ks.t2", ""},
		{"DROP TABLE IF EXISTS ks.nosuch", ""},
		{"DROP KEYSPACE ks", "DROPPED TABLE t2; DROPPED TABLE t2_scylla_cdc_log; DROPPED KEYSPACE ks"},
	})
}

// step is a statement and the events it causes; none means that it is a no-op.
type step struct{ text, want string }

// events runs statements and compares the events of each.
func (b *fixture) events(steps []step) {
	t := b.t
	t.Helper()
	for _, s := range steps {
		version := b.Schema().Version
		res := b.exec(s.text)
		var got []string
		for _, e := range res.Events {
			name := e.Object
			if e.Target == catalog.TargetKeyspace {
				name = e.Keyspace
			}
			got = append(got, fmt.Sprintf("%s %s %s", e.Kind, e.Target, name))
		}
		if g := strings.Join(got, "; "); g != s.want {
			t.Errorf("%s:\n got %s\nwant %s", s.text, g, s.want)
		}
		if changed := b.Schema().Version != version; changed != (s.want != "") {
			t.Errorf("%s: schema version changed: %v", s.text, changed)
		}
		if (res.Change == nil) != (s.want == "") {
			t.Errorf("%s: result %v", s.text, res.Change)
		}
	}
}
