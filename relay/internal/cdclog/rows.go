package cdclog

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// RowKey identifies a row of the log. The low bits of a cdc$time are random, so two
// streams do not share a key.
type RowKey struct {
	Time gocql.UUID
	Seq  int32
}

// Row is a row of the log that was not read before.
type Row struct {
	RowKey
	Stream []byte // valid until the next row
	Event  outbox.Event
	// Insert is true if the row adds an event. Err is set if it adds one that cannot be
	// read.
	Insert bool
	Err    error
}

// KnownRow reports whether a row was read before. It must not keep stream.
type KnownRow func(stream []byte, k RowKey) bool

// Reader reads the CDC log of a table.
type Reader struct {
	session *gocql.Session
	table   outbox.Table
	own     *Portion
	stmt    string
	bounded string // the same with an upper bound
}

// PageSize is the page size of a read, in rows. A node ends a page at 1 MB, too: about 1,000 rows with
// payloads of 500 bytes.
const PageSize = 1000

// NewReader returns a reader of the log of table. It omits rows of aggregates that own
// does not contain.
func NewReader(session *gocql.Session, table outbox.Table, own *Portion) *Reader {
	stmt := `SELECT "cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", ` + rows.Columns(table) +
		" FROM " + table.String() + `_scylla_cdc_log WHERE "cdc$stream_id" IN ? AND "cdc$time" > ?`
	const bypass = " BYPASS CACHE"
	return &Reader{session: session, table: table, own: own, stmt: stmt + bypass, bounded: stmt + ` AND "cdc$time" < ?` + bypass}
}

// Prepare prepares the statement of a read without an upper bound: see [sessions.Prepare].
func (l *Reader) Prepare(ctx context.Context) { sessions.Prepare(ctx, l.session, l.stmt) }

// Read calls each for the rows of streams that are written at the given time, in
// microseconds, or later, and at until or before unless it is 0, and are not known. It reads all pages if whole is true, otherwise one page; more reports whether there are further pages. Read stops at the first error of
// each and returns it.
func (l *Reader) Read(ctx context.Context, streams *StreamList, after, until int64, whole bool, known KnownRow, each func(*Row) error) (more bool, err error) {
	q := l.session.Query(l.stmt, streams, gocql.MinTimeUUID(time.UnixMicro(after)))
	if until > 0 {
		q = l.session.Query(l.bounded, streams, gocql.MinTimeUUID(time.UnixMicro(after)), gocql.MinTimeUUID(time.UnixMicro(until+1)))
	}
	prefetch := 0.0 // the next page may never be needed
	if whole {
		prefetch = 1 // the database reads a page while the one before is published
	}
	iter := q.WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).PageSize(PageSize).Prefetch(prefetch).Iter()
	r := NewRowReader(&l.table, l.own, known)
	for !more && iter.Scan(r.Dest()...) {
		more = !whole && iter.WillSwitchPage()
		row, fresh := r.Row()
		if !fresh {
			continue
		}
		if err := each(row); err != nil {
			_ = iter.Close() // the caller stops; the result of the query does not matter
			return false, err
		}
	}
	return more, iter.Close()
}

// rowReader decodes rows of the log without reflection. It recognizes known rows by their
// first columns and skips the others.
type rowReader struct {
	known   KnownRow
	current Row
	op      scyllacdc.OperationType
	again   bool // row is known
	skip    bool // skip the remaining columns
	others  bool // aggregate belongs to another shard
	table   *outbox.Table
	scanner rows.Scanner
	words   map[string]string
	columns []any
}

// NewRowReader returns a decoder of rows of table.
func NewRowReader(table *outbox.Table, own *Portion, known KnownRow) *rowReader {
	r := &rowReader{known: known, table: table, scanner: rows.NewScanner(*table), words: make(map[string]string)}
	r.columns = []any{
		&logColumn{r, &r.current.Stream}, &logColumn{r, &r.current.Time}, &keyColumn{r}, &operationColumn{r},
	}
	for i, d := range r.scanner.Dest() {
		if i == 0 && !own.All() { // the aggregate's column, which is the partition key
			r.columns = append(r.columns, &aggregateColumn{logColumn{r, d}, own})
			continue
		}
		r.columns = append(r.columns, &logColumn{r, d})
	}
	return r
}

// Dest returns the destinations of the next row.
func (r *rowReader) Dest() []any {
	r.scanner.Dest() // resets the scanner
	r.again, r.skip, r.others = false, false, false
	return r.columns
}

// Row returns the last scanned row; false if it is known or its aggregate belongs to
// another shard.
func (r *rowReader) Row() (*Row, bool) {
	if r.again || r.others {
		return nil, false
	}
	row := &r.current
	row.Insert, row.Err, row.Event = false, nil, outbox.Event{}
	if r.skip {
		return row, true
	}
	if r.op == scyllacdc.Update && !r.scanner.Adds() {
		return row, true // later changes of columns, or nulls of an insert with a TTL
	}
	e := ScanEvent(r.table, r.scanner, WriteTime(row.Time))
	row.Event, row.Err, row.Insert = e.Event, e.Err, true
	return row, true
}

// maxWords bounds the number of cached values of columns with few distinct values.
const maxWords = 1000

// word returns data as a string that is allocated once.
func (r *rowReader) word(data []byte) string {
	if s, ok := r.words[string(data)]; ok {
		return s
	}
	if len(r.words) >= maxWords {
		clear(r.words)
	}
	s := string(data)
	r.words[s] = s
	return s
}

// keyColumn is cdc$batch_seq_no, the last column of the row's key.
type keyColumn struct{ r *rowReader }

// UnmarshalCQL determines whether the row is known.
func (c *keyColumn) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	if len(data) != 4 {
		return fmt.Errorf("cdc$batch_seq_no has %d bytes", len(data))
	}
	c.r.current.Seq = int32(binary.BigEndian.Uint32(data))
	c.r.again = c.r.known(c.r.current.Stream, c.r.current.RowKey)
	c.r.skip = c.r.again
	return nil
}

// operationColumn is cdc$operation.
type operationColumn struct{ r *rowReader }

// UnmarshalCQL skips operations that cannot add an event.
func (c *operationColumn) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	if c.r.skip {
		return nil
	}
	if len(data) != 1 {
		return fmt.Errorf("cdc$operation has %d bytes", len(data))
	}
	c.r.op = scyllacdc.OperationType(data[0])
	c.r.skip = c.r.op != scyllacdc.Insert && c.r.op != scyllacdc.Update
	return nil
}

// aggregateColumn is the aggregate's column in a relay that owns part of the table.
type aggregateColumn struct {
	logColumn
	own *Portion
}

// UnmarshalCQL skips rows of other shards.
func (c *aggregateColumn) UnmarshalCQL(info gocql.TypeInfo, data []byte) error {
	if !c.r.again && !c.own.HasKey(data) {
		c.r.others, c.r.skip = true, true
	}
	return c.logColumn.UnmarshalCQL(info, data)
}

// logColumn is any other column.
type logColumn struct {
	r    *rowReader
	dest any
}

// UnmarshalCQL copies data, except stream ids; null leaves the zero value.
func (c *logColumn) UnmarshalCQL(info gocql.TypeInfo, data []byte) error {
	if c.r.skip || data == nil {
		return nil
	}
	want := 0
	switch d := c.dest.(type) {
	case *gocql.UUID:
		if want = 16; len(data) == want {
			*d = gocql.UUID(data)
			return nil
		}
	case *int64:
		if want = 8; len(data) == want {
			*d = int64(binary.BigEndian.Uint64(data))
			return nil
		}
	case *time.Time:
		if want = 8; len(data) == want {
			*d = time.UnixMilli(int64(binary.BigEndian.Uint64(data))).UTC()
			return nil
		}
	case *string:
		*d = c.r.word(data)
		return nil
	case *[]byte:
		if d == &c.r.current.Stream {
			*d = data
		} else {
			*d = slices.Clone(data)
		}
		return nil
	case gocql.Unmarshaler:
		return d.UnmarshalCQL(info, data)
	}
	return fmt.Errorf("column of the log has %d bytes, want %d", len(data), want)
}

// StreamList is an encoded CQL list of stream ids.
type StreamList []byte

// NewStreamList returns the list of ids.
func NewStreamList(ids ...[]byte) *StreamList {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(ids)))
	for _, id := range ids {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(id))), id...)
	}
	l := StreamList(b)
	return &l
}

// MarshalCQL returns the encoded list.
func (l *StreamList) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return *l, nil }
