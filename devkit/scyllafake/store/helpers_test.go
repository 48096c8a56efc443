package store

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

var (
	intType  = &cqltype.Type{Kind: cqltype.Int}
	textType = &cqltype.Type{Kind: cqltype.Varchar}
	setType  = &cqltype.Type{Kind: cqltype.Set, Elem: intType}
)

// column ids of testTable.
const (
	colPK int32 = iota
	colC1
	colC2
	colS
	colA
	colB
	colSet
	numColumns
)

// testTable is (pk text, c1 int, c2 int, s text static, a text, b text, e set<int>,
// primary key (pk, c1, c2)) with c2 descending.
func testTable(storeID uint32) *catalog.Table {
	t := &catalog.Table{
		Keyspace: "ks", Name: "t", StoreID: storeID, NextColumnID: numColumns,
		PartitionKey: []*catalog.Column{{Name: "pk", Type: textType, ID: colPK}},
		Clustering: []*catalog.Column{
			{Name: "c1", Type: intType, Kind: catalog.Clustering, ID: colC1},
			{Name: "c2", Type: intType, Kind: catalog.Clustering, Position: 1, ID: colC2, Desc: true},
		},
		Statics: []*catalog.Column{{Name: "s", Type: textType, Kind: catalog.Static, Position: -1, ID: colS}},
		Regulars: []*catalog.Column{
			{Name: "a", Type: textType, Kind: catalog.Regular, Position: -1, ID: colA},
			{Name: "b", Type: textType, Kind: catalog.Regular, Position: -1, ID: colB},
			{Name: "e", Type: setType, Kind: catalog.Regular, Position: -1, ID: colSet},
		},
		Options: catalog.Options{GCGraceSeconds: 100},
	}
	return indexColumns(t)
}

// kvTable is (pk text primary key, a text, b text).
func kvTable(storeID uint32) *catalog.Table {
	t := testTable(storeID)
	t.Clustering, t.Statics = nil, nil
	return indexColumns(t)
}

func indexColumns(t *catalog.Table) *catalog.Table {
	t.ByID, t.ByName = map[int32]*catalog.Column{}, map[string]*catalog.Column{}
	for _, c := range t.Columns() {
		t.ByID[c.ID], t.ByName[c.Name] = c, c
	}
	return t
}

// tester is the common part of *testing.T, *testing.B and *rapid.T that helpers use.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// clock is a fake wall clock in Unix seconds.
type clock struct{ sec atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.sec.Store(1000)
	return c
}

func (c *clock) Now() time.Time { return time.Unix(c.sec.Load(), 999_999_999) }

func setup(t testing.TB) (*Store, *clock) {
	t.Helper()
	c := newClock()
	s, err := Open(Options{Clock: c})
	if err != nil {
		t.Fatalf("Open() error = %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	})
	return s, c
}

func apply(t tester, s *Store, muts ...*Mutation) {
	t.Helper()
	if err := s.Apply(muts); err != nil {
		t.Fatalf("Apply() error = %v", err)
	}
}

func i32(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(int32(n))) }

func ck(values ...int) [][]byte {
	out := make([][]byte, len(values))
	for i, v := range values {
		out[i] = i32(v)
	}
	return out
}

// testToken places partition keys by their first byte, so that some share a token.
func testToken(key string) int64 {
	if key == "" {
		return -9
	}
	return int64(key[0]) - 100
}

func partition(t *catalog.Table, key string) *Mutation {
	return &Mutation{Table: t, Key: []byte(key), Token: testToken(key)}
}

func rowMutation(t *catalog.Table, key string, rows ...Row) *Mutation {
	m := partition(t, key)
	m.Rows = rows
	return m
}

func live(ts int64, value string) *Cell { return &Cell{Timestamp: ts, Value: []byte(value)} }

func dead(ts int64) *Cell { return &Cell{Timestamp: ts, Dead: true} }

func ttl(ts int64, value string, n int32, expiry int64) *Cell {
	return &Cell{Timestamp: ts, Value: []byte(value), TTL: n, Expiry: expiry}
}

func columnData(id int32, c *Cell) ColumnData { return ColumnData{ID: id, Cell: c} }

func deletion(ts int64) Deletion { return Deletion{Set: true, Timestamp: ts} }

func element(path int, c *Cell) Element { return Element{Path: i32(path), Cell: *c} }

// dump reads everything a scan gives, one line per partition, static and row.
func dump(t tester, s *Store, sc Scan) string {
	t.Helper()
	it, err := s.Scan(sc)
	if err != nil {
		t.Fatalf("Scan() error = %v", err)
	}
	var b strings.Builder
	for it.NextPartition() {
		fmt.Fprintf(&b, "%s@%d", it.Key(), it.Token())
		if r := it.Static(); r != nil {
			b.WriteString(" static" + show(r))
		}
		b.WriteByte('\n')
		for it.NextRow() {
			b.WriteString(" " + show(it.Row()) + "\n")
		}
	}
	if err := it.Close(); err != nil {
		t.Fatalf("Close() error = %v", err)
	}
	return b.String()
}

func show(r *Row) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, v := range r.Clustering {
		if i > 0 {
			b.WriteByte(' ')
		}
		if len(v) == 4 {
			fmt.Fprint(&b, int32(binary.BigEndian.Uint32(v)))
		} else {
			fmt.Fprintf(&b, "%x", v)
		}
	}
	b.WriteByte(')')
	if r.Marker != nil {
		b.WriteString(" M" + showCell(r.Marker))
	}
	if r.Deleted.Set {
		b.WriteString(" DELETED")
	}
	for _, c := range r.Columns {
		if c.Cell != nil {
			fmt.Fprintf(&b, " %d=%s", c.ID, showCell(c.Cell))
			continue
		}
		fmt.Fprintf(&b, " %d={", c.ID)
		for i, e := range c.Elements {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%d:%s", int32(binary.BigEndian.Uint32(e.Path)), showCell(&e.Cell))
		}
		b.WriteByte('}')
		if c.Deleted.Set {
			b.WriteString("DELETED")
		}
	}
	return b.String()
}

func showCell(c *Cell) string {
	out := fmt.Sprintf("%s@%d", c.Value, c.Timestamp)
	if c.TTL != 0 {
		out += fmt.Sprintf("/%d!%d", c.TTL, c.Expiry)
	}
	if c.Dead {
		out += " DEAD"
	}
	return out
}

func want(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got: %q\nwant: %q", what, got, want)
	}
}

// all scans the whole table.
func all(t *catalog.Table) Scan {
	return Scan{Table: t, MinToken: -1 << 63, MaxToken: 1<<63 - 1}
}

func one(t *catalog.Table, key string) Scan {
	return Scan{Table: t, Key: []byte(key), Token: testToken(key)}
}

// Get reads one row and its partition's static row at one instant; each is nil if it is not live. A nil clustering in a table
// that has a clustering key selects the static row only. The caller owns the result.
func (s *Store) Get(t *catalog.Table, key []byte, token int64, clustering [][]byte) (row, static *Row, err error) {
	one := Bound{Prefix: clustering, Inclusive: true}
	ranges := []Range{{one, one}}
	if len(clustering) < len(t.Clustering) {
		ranges = []Range{}
	}
	it, err := s.Scan(Scan{Table: t, Key: key, Token: token, Ranges: ranges})
	if err != nil {
		return nil, nil, err
	}
	if it.NextPartition() {
		static = it.Static().Clone()
		if it.NextRow() {
			row = it.Row().Clone()
		}
	}
	if err := it.Close(); err != nil {
		return nil, nil, err
	}
	return row, static, nil
}
