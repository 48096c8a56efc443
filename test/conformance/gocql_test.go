package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// An unmodified gocql receives the same answers. It prepares the statements
// that the raw client sends as QUERY, so it uses other code of the server.
func TestScyllafake_AnswersTheDriver(t *testing.T) {
	t.Parallel()
	addr := startFake(t, "").Addr()
	for _, f := range readCorpus(t) {
		recorded := readRecording(t, f)
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range f.cases {
				runWithDriver(t, addr, c, recorded)
			}
		})
	}
}

func runWithDriver(t *testing.T, addr string, c *corpusCase, recorded recording) {
	t.Helper()
	raw, err := dialRaw(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	if err := mustQuery(raw, "CREATE KEYSPACE "+c.keyspace()+" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"); err != nil {
		t.Fatal(err)
	}
	cluster := gocql.NewCluster(addr)
	cluster.Keyspace = c.keyspace()
	cluster.ProtoVersion = 4
	cluster.Timeout = requestTimeout
	session, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for i, s := range c.steps {
		time.Sleep(s.options.wait)
		want := recorded[key(c, i)]
		if s.differs(releases[0]) {
			want = s.scylla
		}
		for _, one := range s.requests() {
			if err := driverAgrees(session, one, want); err != nil {
				t.Errorf("%s: %s\n%v", s.where, s.text, err)
			}
		}
	}
}

// driverAgrees sends a step with gocql and compares the part of the answer that
// gocql shows.
func driverAgrees(session *gocql.Session, s *step, want []string) error {
	if want == nil {
		return fmt.Errorf("no answer is recorded")
	}
	if !sendable(s) || strings.Contains(want[0], " tuple<") {
		return nil
	}
	got, err := driverAnswer(session, s)
	if err != nil {
		code := cqlcode.Of(err)
		if code == cqlcode.None {
			return err
		}
		got = []string{fmt.Sprintf("error %04x", code)}
	}
	if visible := visibleLines(s, want); !slices.Equal(got, visible) {
		return fmt.Errorf("gocql shows\n%s\nwanted\n%s", indent(got), indent(visible))
	}
	return nil
}

// sendable reports whether gocql can send the step and show the bytes of the
// answer: it refuses USE, splits tuples, and counts values itself (or panics
// without one, in its search for a routing key).
func sendable(s *step) bool {
	fits := func(cql string, values []value) bool { return strings.Count(cql, "?") == len(values) }
	if s.options.meta || s.options.names || s.options.skipMeta || strings.HasPrefix(s.cql, "USE ") || strings.Contains(s.text, "tuple:[") {
		return false
	}
	if s.batch == nil {
		return fits(s.cql, s.values)
	}
	return !slices.ContainsFunc(s.batch.items, func(i batchItem) bool { return !fits(i.cql, i.values) })
}

// visibleLines is the part of an answer that gocql shows: no schema changes, no
// rows of batches, and only the code of errors.
func visibleLines(s *step, want []string) []string {
	switch {
	case strings.HasPrefix(want[0], "error "):
		return []string{want[0][:len("error 2200")]}
	case strings.HasPrefix(want[0], "schema "), s.batch != nil:
		return []string{"void"}
	}
	// gocql fetches on when a page is empty.
	var lines []string
	for i, l := range want {
		if l != "more" || i > 0 && strings.HasPrefix(want[i-1], "  ") {
			lines = append(lines, l)
		}
	}
	return lines
}

func driverAnswer(session *gocql.Session, s *step) ([]string, error) {
	if s.batch != nil {
		return driverBatch(session, s)
	}
	var lines []string
	var state []byte
	for range maxPages {
		q := session.Query(s.cql, driverValues(s.values)...).PageState(state).Consistency(driverConsistency(s))
		if s.options.pageSize > 0 {
			q.PageSize(int(s.options.pageSize))
		}
		if s.options.timestamp != nil {
			q.WithTimestamp(*s.options.timestamp)
		}
		iter := q.Iter()
		page, err := driverPage(iter)
		state = iter.PageState()
		if err := errors.Join(err, iter.Close()); err != nil {
			return nil, err
		}
		if len(lines) > 0 {
			page = page[1:]
		}
		lines = append(lines, page...)
		if len(state) == 0 {
			return lines, nil
		}
		lines = append(lines, "more")
	}
	return nil, fmt.Errorf("more than %d pages", maxPages)
}

func driverConsistency(s *step) gocql.Consistency {
	if l := slices.Index(consistencyNames[:], s.options.consistency); l >= 0 {
		return gocql.Consistency(l)
	}
	return gocql.One
}

func driverPage(iter *gocql.Iter) ([]string, error) {
	infos := iter.Columns()
	if len(infos) == 0 {
		return []string{"void"}, nil
	}
	columns := make([]*message.ColumnMetadata, len(infos))
	for i, c := range infos {
		columns[i] = &message.ColumnMetadata{Keyspace: c.Keyspace, Table: c.Table, Name: c.Name, Type: driverType(c.TypeInfo)}
	}
	var rows message.RowSet
	for {
		cells := make([]rawCell, len(infos))
		dest := make([]any, len(infos))
		for i := range cells {
			dest[i] = &cells[i]
		}
		if !iter.Scan(dest...) {
			return rowsLines(columns, rows)
		}
		row := make(message.Row, len(cells))
		for i, c := range cells {
			row[i] = c
		}
		rows = append(rows, row)
	}
}

// rawCell reads and writes the bytes of a value unchanged.
type rawCell []byte

func (c *rawCell) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	if data != nil {
		*c = append([]byte{}, data...)
	}
	return nil
}

func (c rawCell) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return c, nil }

func driverValues(values []value) []any {
	var bound []any
	for _, v := range values {
		if v.unset {
			bound = append(bound, gocql.UnsetValue)
		} else {
			bound = append(bound, rawCell(v.bytes))
		}
	}
	return bound
}

func driverBatch(session *gocql.Session, s *step) ([]string, error) {
	kind := gocql.LoggedBatch
	if s.batch.kind == "unlogged" {
		kind = gocql.UnloggedBatch
	}
	b := session.Batch(kind)
	b.SetConsistency(driverConsistency(s))
	if s.options.timestamp != nil {
		b.WithTimestamp(*s.options.timestamp)
	}
	for _, item := range s.batch.items {
		b.Query(item.cql, driverValues(item.values)...)
	}
	return []string{"void"}, session.ExecuteBatch(b)
}

// driverType converts a type of gocql to the other library.
func driverType(t gocql.TypeInfo) datatype.DataType {
	if c, ok := t.(gocql.CollectionType); ok {
		switch c.Type() {
		case gocql.TypeList:
			return datatype.NewList(driverType(c.Elem))
		case gocql.TypeSet:
			return datatype.NewSet(driverType(c.Elem))
		default:
			return datatype.NewMap(driverType(c.Key), driverType(c.Elem))
		}
	}
	if p, ok := driverTypes[t.Type()]; ok {
		return p
	}
	return datatype.NewCustom(t.Custom())
}

var driverTypes = map[gocql.Type]datatype.DataType{
	gocql.TypeAscii: datatype.Ascii, gocql.TypeBigInt: datatype.Bigint, gocql.TypeBlob: datatype.Blob,
	gocql.TypeBoolean: datatype.Boolean, gocql.TypeCounter: datatype.Counter, gocql.TypeDecimal: datatype.Decimal,
	gocql.TypeDouble: datatype.Double, gocql.TypeFloat: datatype.Float, gocql.TypeInt: datatype.Int,
	gocql.TypeTimestamp: datatype.Timestamp, gocql.TypeUUID: datatype.Uuid, gocql.TypeVarchar: datatype.Varchar,
	gocql.TypeVarint: datatype.Varint, gocql.TypeTimeUUID: datatype.Timeuuid, gocql.TypeInet: datatype.Inet,
	gocql.TypeDate: datatype.Date, gocql.TypeTime: datatype.Time, gocql.TypeSmallInt: datatype.Smallint,
	gocql.TypeTinyInt: datatype.Tinyint, gocql.TypeDuration: datatype.Duration,
}
