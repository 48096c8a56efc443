package engine_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cdc"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/ddl"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
	"github.com/scylla-outbox/scylla-outbox/test/cqlvalue"
)

// node is an engine with everything below it, in memory, and keyspace ks.
type node struct {
	t       testing.TB
	engine  *engine.Engine
	catalog *ddl.Catalog
	skew    atomic.Int64 // added to the wall clock, ns
	params  engine.Params
}

// single is the cluster of a node without others.
type single struct{}

func (single) Nodes() int { return 1 }
func (single) Alive() int { return 1 }

// The tables of the recordings' cases.
var usualTables = []string{
	"CREATE TABLE base (pk int, ck int, s text static, a int, b text, PRIMARY KEY (pk, ck)) WITH CLUSTERING ORDER BY (ck DESC) AND cdc = {'enabled': true}",
	"CREATE TABLE plain (pk int, ck int, s int static, v int, w text, PRIMARY KEY (pk, ck))",
	"CREATE TABLE kv (k int PRIMARY KEY, v int, w text)",
}

func setup(t testing.TB, tables ...string) *node {
	t.Helper()
	return setupHook(t, nil, tables...)
}

// Now is the clock of the node.
func (n *node) Now() time.Time { return time.Now().Add(time.Duration(n.skew.Load())) }

func setupHook(t testing.TB, hook engine.Hook, tables ...string) *node {
	t.Helper()
	return setupCosts(t, hook, nil, tables...)
}

func setupCosts(t testing.TB, hook engine.Hook, costs *engine.ReadCosts, tables ...string) *node {
	t.Helper()
	n := &node{t: t, params: engine.Params{Consistency: engine.One}}
	st, err := store.Open(store.Options{Clock: n})
	if err != nil {
		t.Fatal(err)
	}
	version, err := catalog.ParseVersion("5.1")
	if err != nil {
		t.Fatal(err)
	}
	top, err := topology.Open(st, topology.Options{Shards: 1, Tokens: 4, Version: version, Clock: n})
	if err != nil {
		t.Fatal(err)
	}
	n.catalog, err = ddl.Open(ddl.Options{Store: st, Topology: top, Version: version, Clock: n})
	if err != nil {
		t.Fatal(err)
	}
	n.engine = engine.New(engine.Config{
		Store: st, Schema: n.catalog, Clock: n, Hook: hook, Costs: costs, DataCenter: top.DataCenter, Cluster: single{},
		CDC: cdc.NewManager(n.catalog, top, 1),
	})
	t.Cleanup(func() {
		n.engine.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	n.ddl("CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
	for _, s := range tables {
		n.ddl(s)
	}
	return n
}

func (n *node) ddl(text string) {
	n.t.Helper()
	stmt, err := cql.Parse(text)
	if err != nil {
		n.t.Fatalf("%s: %v", text, err)
	}
	if _, err := n.catalog.Execute("ks", stmt); err != nil {
		n.t.Fatalf("%s: %v", text, err)
	}
}

func (n *node) plan(text string) (*engine.Plan, error) {
	stmt, err := cql.Parse(text)
	if err != nil {
		return nil, cqlerr.New(cqlerr.Syntax, "%v", err)
	}
	return n.engine.Plan("ks", stmt)
}

func (n *node) mustPlan(text string) *engine.Plan {
	n.t.Helper()
	p, err := n.plan(text)
	if err != nil {
		n.t.Fatalf("%s: %v", text, err)
	}
	return p
}

// run plans and executes one statement with n.params.
func (n *node) run(text string, values ...engine.Value) (*engine.Result, error) {
	p, err := n.plan(text)
	if err != nil {
		return nil, err
	}
	params := n.params
	params.Values = values
	return n.engine.Execute(context.Background(), p, params)
}

// answer runs a statement and formats its result: rows as "1 'a' | 2 null", "+" at
// their end if there are more pages, errors as code and message, "" for Void.
func (n *node) answer(text string, values ...engine.Value) string {
	n.t.Helper()
	res, err := n.run(text, values...)
	return show(n.t, res, err)
}

func show(t testing.TB, res *engine.Result, err error) string {
	t.Helper()
	var e *cqlerr.Error
	if errors.As(err, &e) {
		return e.Error()
	}
	if err != nil {
		return err.Error()
	}
	rows := decodeRows(t, res)
	lines := make([]string, len(rows))
	for i, r := range rows {
		for j, v := range r {
			if j > 0 {
				lines[i] += " "
			}
			lines[i] += cqlvalue.Format(res.Columns[j].Type, v)
		}
	}
	out := strings.Join(lines, " | ")
	if res.Columns != nil && len(rows) == 0 {
		out = "none"
	}
	if res.PagingState != nil {
		out += " +"
	}
	return out
}

func decodeRows(t testing.TB, res *engine.Result) [][][]byte {
	t.Helper()
	b := res.Rows
	rows := make([][][]byte, res.RowCount)
	for i := range rows {
		for range res.Columns {
			if len(b) < 4 {
				t.Fatal("rows end early")
			}
			size := int32(binary.BigEndian.Uint32(b))
			b = b[4:]
			var v []byte
			if size >= 0 {
				v, b = b[:size:size], b[size:]
			}
			rows[i] = append(rows[i], v)
		}
	}
	if len(b) != 0 {
		t.Fatalf("%d bytes after the rows", len(b))
	}
	return rows
}

// step is a statement and its result.
type step struct{ cql, want string }

// play runs statements one after the other.
func (n *node) play(steps ...step) {
	n.t.Helper()
	for _, s := range steps {
		if got := n.answer(s.cql); got != s.want {
			n.t.Errorf("%s\n got %s\nwant %s", s.cql, got, s.want)
		}
	}
}

// refusals runs statements that must fail; a message without a code has 2200.
func refusals(t *testing.T, n *node, cases []step) {
	t.Helper()
	for _, c := range cases {
		got := n.answer(c.cql)
		if !strings.Contains(c.want, "0000 ") {
			c.want = "2200 " + c.want
		}
		if got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.cql, got, c.want)
		}
	}
}

func int32Value(i int32) engine.Value {
	return engine.Value{Bytes: binary.BigEndian.AppendUint32(nil, uint32(i))}
}

func int64Value(i int64) engine.Value {
	return engine.Value{Bytes: binary.BigEndian.AppendUint64(nil, uint64(i))}
}

func textValue(s string) engine.Value { return engine.Value{Bytes: []byte(s)} }

var (
	nullValue  = engine.Value{}
	unsetValue = engine.Value{Unset: true}
)

// level finds a consistency level by its name.
func level(t *testing.T, name string) engine.Consistency {
	t.Helper()
	for c := engine.Any; c <= engine.LocalOne; c++ {
		if c.String() == name {
			return c
		}
	}
	t.Fatalf("no level %s", name)
	return 0
}
