package cdc

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
	"github.com/scylla-outbox/scylla-outbox/test/cqlvalue"
)

// The first timestamp of a test, and the clock.
const t0 = int64(1_795_237_000_000_000)

var now = time.UnixMicro(t0).Add(time.Second)

// base is the table that most recorded cases write to.
var baseColumns = []string{"pk int key", "ck int desc", "s text static", "a int", "b text"}

// table makes a base table. A column is "name type", then "key", "clustering",
// "desc" (clustering, descending), "static" or nothing.
func table(t testing.TB, opts catalog.CDC, cols ...string) *catalog.Table {
	t.Helper()
	base := catalog.NewTable("ks", "base")
	base.StoreID = 1001
	opts.Enabled = true
	base.CDC = &opts
	for _, def := range cols {
		c := catalog.Column{Kind: catalog.Regular}
		var typ string
		c.Name, typ, _ = strings.Cut(def, " ")
		for suffix, kind := range map[string]catalog.ColumnKind{
			" key": catalog.PartitionKey, " clustering": catalog.Clustering, " desc": catalog.Clustering, " static": catalog.Static,
		} {
			if rest, ok := strings.CutSuffix(typ, suffix); ok {
				typ, c.Kind, c.Desc = rest, kind, suffix == " desc"
			}
		}
		parsed, err := cqltype.Parse(typ)
		if err != nil {
			t.Fatal(err)
		}
		c.Type = parsed
		base.Add(c)
	}
	return base
}

// fixture is a Manager over a store with one base table and its log.
type fixture struct {
	testing.TB
	base, log *catalog.Table
	schema    *catalog.Schema
	store     *store.Store
	topology  *topology.Topology
	manager   *Manager
	writes    int64
}

// Schema returns the schema of the fixture.
func (f *fixture) Schema() *catalog.Schema { return f.schema }

// fixedClock is a clock that does not advance.
type fixedClock time.Time

func (c fixedClock) Now() time.Time { return time.Time(c) }

func setup(t testing.TB, base *catalog.Table) *fixture {
	t.Helper()
	st, err := store.Open(store.Options{Clock: fixedClock(now)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	top, err := topology.Open(st, topology.Options{Tokens: 4, Clock: fixedClock(now.Add(-time.Minute))})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{TB: t, store: st, topology: top}
	f.manager = NewManager(f, top, 1)
	f.attach(base, nil)
	return f
}

// attach makes base the table of the schema, with a log that follows existing.
func (f *fixture) attach(base, existing *catalog.Table) {
	f.Helper()
	log, err := LogTable(base, existing, Ident{ID: uuid.New(), StoreID: 1002}, t0)
	if err != nil {
		f.Fatal(err)
	}
	f.base, f.log = base, log
	f.schema = &catalog.Schema{Keyspaces: map[string]*catalog.Keyspace{"ks": {
		Name: "ks", Tables: map[string]*catalog.Table{base.Name: base, log.Name: log},
	}}}
}

// write logs and stores a write as the engine does, and returns its log rows.
func (f *fixture) write(pk int, ops string) []string {
	f.Helper()
	f.writes++
	muts := []*store.Mutation{f.mutation(pk, ops, t0+1000*f.writes)}
	logs, err := f.manager.Augment(muts, now)
	if err != nil {
		f.Fatalf("Augment(%q) error = %v", ops, err)
	}
	if err := f.store.Apply(append(muts, logs...)); err != nil {
		f.Fatal(err)
	}
	return f.show(logs)
}

// show formats log mutations as in the recordings: for each row, in order of time, its
// number, operation, and the other columns that are not null, by name. A line "--"
// precedes a later timestamp.
func (f *fixture) show(logs []*store.Mutation) []string {
	f.Helper()
	var out []string
	slices.SortStableFunc(logs, func(a, b *store.Mutation) int {
		return cqltype.TTimeUUID.Compare(a.Rows[0].Clustering[0], b.Rows[0].Clustering[0])
	})
	for i, m := range logs {
		if i > 0 {
			out = append(out, "--")
		}
		if m.Table != f.log || len(m.Key) != 16 || m.Token != int64(binary.BigEndian.Uint64(m.Key)) {
			f.Errorf("log mutation of %s, key %x, token %d", m.Table.Name, m.Key, m.Token)
		}
		for n, r := range m.Rows {
			if r.Marker != nil || r.Deleted.Set || !slices.IsSortedFunc(r.Columns, func(a, b store.ColumnData) int { return cmp.Compare(a.ID, b.ID) }) {
				f.Errorf("log row %d has a marker or tombstone, or columns out of order", n)
			}
			if string(r.Clustering[0]) != string(m.Rows[0].Clustering[0]) {
				f.Error("a group has two times")
			}
			line := fmt.Sprintf("seq %d op %s", binary.BigEndian.Uint32(r.Clustering[1]), cqlvalue.Format(cqltype.TTinyInt, r.Column(f.log.ByName[ColOperation].ID).Cell.Value))
			var cols []string
			for _, d := range r.Columns {
				c := f.log.ByID[d.ID]
				if d.Cell.Timestamp != cqltype.TimeUUIDMicros(r.Clustering[0]) {
					f.Errorf("%s has timestamp %d, want the row's", c.Name, d.Cell.Timestamp)
				}
				if c.Name != ColOperation {
					cols = append(cols, c.Name+"="+cqlvalue.Format(c.Type, d.Cell.Value))
				}
			}
			slices.Sort(cols)
			out = append(out, strings.Join(append([]string{line}, cols...), " "))
		}
	}
	return out
}

// mutation builds a mutation from a text of operations separated by "; ":
//
//	+KEY COL…   INSERT          ~KEY COL…   UPDATE
//	-KEY        row deletion    s COL…      static columns
//	[KEY KEY)   range deletion, brackets include the bound
//	!           partition deletion
//
// KEY is clustering values joined by commas. COL is name=JSON (a collection is
// replaced), name+=JSON (added to), name-=JSON (a list of elements to remove)
// or name=null. @N shifts the timestamp by N µs, /N sets a TTL of N s.
func (f *fixture) mutation(pk int, ops string, ts int64) *store.Mutation {
	f.Helper()
	key, err := f.base.EncodeKey([][]byte{cqltype.EncodeInt32(int32(pk))})
	if err != nil {
		f.Fatal(err)
	}
	m := &store.Mutation{Table: f.base, Key: key, Token: f.base.Token(key)}
	for op := range strings.SplitSeq(ops, "; ") {
		f.operation(m, op, ts)
	}
	slices.SortStableFunc(m.Rows, func(a, b store.Row) int { return f.compareKeys(a.Clustering, b.Clustering) })
	return m
}

func (f *fixture) operation(m *store.Mutation, op string, ts int64) {
	f.Helper()
	words := strings.Fields(op)
	var ttl int32
	words = slices.DeleteFunc(words, func(w string) bool {
		switch w[0] {
		case '@':
			ts += int64(f.number(w[1:]))
		case '/':
			ttl = int32(f.number(w[1:]))
		default:
			return false
		}
		return true
	})
	kind, arg := words[0][0], words[0][1:]
	gone := store.Deletion{Set: true, Timestamp: ts}
	cell := store.Cell{Timestamp: ts, TTL: ttl}
	if ttl != 0 {
		cell.Expiry = now.Unix() + int64(ttl)
	}
	switch kind {
	case '!':
		m.Deleted = gone
	case '-':
		f.row(m, f.key(arg)).Deleted = gone
	case '[', '(':
		end := words[1]
		m.Ranges = append(m.Ranges, store.RangeDeletion{Deletion: gone, Range: store.Range{
			Start: store.Bound{Prefix: f.key(arg), Inclusive: kind == '['},
			End:   store.Bound{Prefix: f.key(end[:len(end)-1]), Inclusive: strings.HasSuffix(end, "]")},
		}})
	case 's':
		if m.Static == nil {
			m.Static = &store.Row{}
		}
		m.Static.Columns = append(m.Static.Columns, f.columns(words[1:], cell)...)
	case '+', '~':
		row := f.row(m, f.key(arg))
		for _, d := range f.columns(words[1:], cell) {
			if i := slices.IndexFunc(row.Columns, func(o store.ColumnData) bool { return o.ID == d.ID }); i >= 0 {
				key := elementKey(f.base.ByID[d.ID].Type)
				row.Columns[i].Elements = append(row.Columns[i].Elements, d.Elements...)
				slices.SortFunc(row.Columns[i].Elements, func(a, b store.Element) int { return key.Compare(a.Path, b.Path) })
				continue
			}
			row.Columns = append(row.Columns, d)
		}
		slices.SortFunc(row.Columns, func(a, b store.ColumnData) int { return cmp.Compare(a.ID, b.ID) })
		if kind == '+' {
			marker := cell
			row.Marker = &marker
		}
	default:
		f.Fatalf("operation %q", op)
	}
}

// row returns the row of a key, a new one if necessary: a mutation has one for each.
func (f *fixture) row(m *store.Mutation, key [][]byte) *store.Row {
	for i := range m.Rows {
		if f.compareKeys(m.Rows[i].Clustering, key) == 0 {
			return &m.Rows[i]
		}
	}
	m.Rows = append(m.Rows, store.Row{Clustering: key})
	return &m.Rows[len(m.Rows)-1]
}

func (f *fixture) compareKeys(a, b [][]byte) int {
	for i, c := range f.base.Clustering {
		if d := c.Type.Compare(a[i], b[i]); d != 0 {
			return map[bool]int{false: d, true: -d}[c.Desc]
		}
	}
	return 0
}

func (f *fixture) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		f.Fatal(err)
	}
	return n
}

func (f *fixture) key(arg string) (key [][]byte) {
	if arg == "" {
		return nil
	}
	for i, v := range strings.Split(arg, ",") {
		key = append(key, f.value(f.base.Clustering[i].Type, v))
	}
	return key
}

// value serialises JSON: numbers, texts, booleans, lists, and maps with texts as keys.
func (f *fixture) value(typ *cqltype.Type, text string) []byte {
	f.Helper()
	plain := func(v []byte, err error) []byte {
		if err != nil {
			f.Fatalf("%q as %v: %v", text, typ, err)
		}
		return v
	}
	switch typ.Kind {
	case cqltype.List, cqltype.Set:
		var list []json.RawMessage
		plain(nil, json.Unmarshal([]byte(text), &list))
		var elems [][]byte
		for _, e := range list {
			elems = append(elems, f.value(typ.Elem, string(e)))
		}
		return cqltype.Normalize(typ, cqltype.BuildCollection(elems...))
	case cqltype.Map:
		var object map[string]json.RawMessage
		plain(nil, json.Unmarshal([]byte(text), &object))
		var keys, values [][]byte
		for k, v := range object {
			keys, values = append(keys, plain(typ.Key.FromText(k))), append(values, f.value(typ.Elem, string(v)))
		}
		return cqltype.Normalize(typ, cqltype.BuildMap(keys, values))
	}
	if unquoted := ""; json.Unmarshal([]byte(text), &unquoted) == nil {
		text = unquoted
	}
	return plain(typ.FromText(text))
}

func (f *fixture) columns(words []string, cell store.Cell) (out []store.ColumnData) {
	f.Helper()
	for _, w := range words {
		name, text, _ := strings.Cut(w, "=")
		plain := strings.TrimRight(name, "+-")
		c := f.base.ByName[plain]
		if c == nil {
			f.Fatalf("no column %q", plain)
		}
		d := store.ColumnData{ID: c.ID}
		switch {
		case !c.Type.IsMultiCell():
			v := cell
			if text == "null" {
				v = store.Cell{Timestamp: cell.Timestamp, Dead: true}
			} else {
				v.Value = f.value(c.Type, text)
			}
			d.Cell = &v
		case strings.HasSuffix(name, "-"):
			for e := range cqltype.Elements(f.value(cqltype.NewList(elementKey(c.Type)), text)) {
				d.Elements = append(d.Elements, store.Element{Path: e, Cell: store.Cell{Timestamp: cell.Timestamp, Dead: true}})
			}
		default:
			if !strings.HasSuffix(name, "+") {
				d.Deleted = store.Deletion{Set: true, Timestamp: cell.Timestamp - 1}
			}
			if text != "null" {
				d.Elements = f.elements(c.Type, f.value(c.Type, text), cell)
			}
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b store.ColumnData) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// elements are the cells of a multi-cell value. The elements of a list have the paths that listPath
// returns.
func (f *fixture) elements(typ *cqltype.Type, v []byte, cell store.Cell) (out []store.Element) {
	add := func(path, value []byte) {
		e := store.Element{Path: path, Cell: cell}
		e.Value = value
		out = append(out, e)
	}
	switch typ.Kind {
	case cqltype.Set:
		for e := range cqltype.Elements(v) {
			add(e, []byte{})
		}
	case cqltype.Map:
		for k, e := range cqltype.Pairs(v) {
			add(k, e)
		}
	case cqltype.List:
		i := 0
		for e := range cqltype.Elements(v) {
			add(listPath(i), e)
			i++
		}
	}
	return out
}

func listPath(i int) []byte {
	u := cqltype.TimeUUIDAt(t0+int64(i), 0x8080808080808080)
	return u[:]
}
