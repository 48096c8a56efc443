// Package rows reads the rows of outbox tables, and of their CDC logs, as events: for relays,
// and for tools such as a verifier. It may change in a minor version.
//
// Services that write events, and consumers of topics, do not need it.
package rows

import (
	"strconv"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/outbox/internal/keys"
)

var functions = access.Outbox.(*access.Functions[outbox.Table, outbox.Event, outbox.ID, outbox.Mapping])

// Row is a row of the outbox table, or of its CDC log, in the form of ChangeRow
// of scylla-cdc-go: scalar values behind pointers that are nil for null.
type Row interface {
	// GetValue returns the value of a column. It returns false if there is no such
	// column.
	GetValue(column string) (any, bool)
}

// RowError reports why a row is not an event. Its fields:
//
//	Column   string
//	Problem  string
//	Mismatch bool         // the table does not match its mapping: other rows have the same problem
//	Event    outbox.Event // the readable fields; any of them may be zero
type RowError = access.RowError[outbox.Event]

// UnknownKeyError reports that the partition of an event's row is unknown. Its fields:
//
//	Table, Column string // the table with its keyspace, a column of its partition key
//	Problem       string // describes the content of the column
type UnknownKeyError = access.UnknownKeyError

// Scanner reads events from the rows of a table without reflection. Reuse it
// for many rows; it is not safe for concurrent use. The returned events share
// nothing with it.
type Scanner interface {
	// Dest returns the destinations of the columns, in their order, for Iter.Scan.
	// A query with more columns appends or prepends its own destinations.
	//
	// Each is a pointer to a gocql.UUID, int64, time.Time, string or []byte whose
	// column has exactly that type, or a gocql.Unmarshaler that ignores null.
	Dest() []any
	// Event returns the event of the row that was scanned last, or a *RowError.
	// It resets the scanner for the next row.
	Event() (outbox.Event, error)
	// Adds is the function Adds for the row that was scanned last. Call it before Event.
	Adds() bool
}

// NewScanner returns a Scanner for the columns that Columns lists.
func NewScanner(t outbox.Table) Scanner { return functions.NewScanner(t) }

// FromRow reads an Event from a complete row: the log row of an insert (delta
// full) or a postimage.
//
// The error is a *RowError. It is permanent: such a row can never become an
// event.
func FromRow(t outbox.Table, r Row) (outbox.Event, error) { return functions.FromRow(t, r) }

// Adds reports whether the log row of an update adds an event, since a CQL
// UPDATE can write whole rows. Other updates changed other columns, or have the
// nulls of an insert with a TTL.
func Adds(t outbox.Table, r Row) bool { return functions.Adds(t, r) }

// CheckDelay returns a *RowError if an event is due more than outbox.MaxDelay after the write
// of its row, by whatever clocks dated the two.
func CheckDelay(t outbox.Table, e *outbox.Event, written time.Time) error {
	return functions.CheckDelay(t, e, written)
}

// Decode is the reverse of Append, Insert and InsertIfNotExists: it returns the event of such a
// statement with its arguments. ok is false for a statement that is no INSERT of the columns of
// the table. Package outboxtest applies it to batches.
func Decode(t outbox.Table, stmt string, args []any) (e outbox.Event, ok bool, err error) {
	return functions.Decode(t, stmt, args)
}

// Outline returns t without the large fields: payload, content type, headers
// and delivery time. It is for searching events; it cannot write.
func Outline(t outbox.Table) outbox.Table { return functions.Outline(t) }

// Columns returns the columns of an event as in a statement, in the order of a
// Scanner's destinations.
func Columns(t outbox.Table) string { return functions.Columns(t) }

// Column returns, in CQL, the name of the column that outbox_messages calls name
// (outbox.Mapping); empty if the table has none.
func Column(t outbox.Table, name string) string { return functions.Column(t, name) }

// Descending reports whether the table stores the events of an aggregate with
// the highest number first (CLUSTERING ORDER BY).
func Descending(t outbox.Table) bool { return functions.Descending(t) }

// SelectByKey returns the statement, with its arguments, that reads the events
// of of's aggregate with from <= Sequence < to in their order, whatever that of
// the table: the write time in microseconds, and then Columns. Only a table with
// numbers has it.
//
// ScyllaDB executes it at plain consistency levels only if the table is
// Descending: SERIAL reads against the clustering order fail.
func SelectByKey(t outbox.Table, of *outbox.Event, from, to int64) (stmt string, args []any) {
	return functions.SelectByKey(t, of, from, to)
}

// SelectByToken returns the statement, with its arguments, that reads the rows
// whose partition has a token above after, up to upTo: the write time in
// microseconds, and then Columns. The rows of an aggregate are together, in the
// order of the table (Descending). Only a table with numbers has it.
func SelectByToken(t outbox.Table, after, upTo int64) (stmt string, args []any) {
	return functions.SelectByToken(t, after, upTo)
}

// SelectAggregates returns the statement, with its arguments, that reads the ids
// of the aggregates in the range of tokens of SelectByToken, in the order of the
// tokens. Only a table with numbers has it.
func SelectAggregates(t outbox.Table, after, upTo int64) (stmt string, args []any) {
	return functions.SelectAggregates(t, after, upTo)
}

// ScanAggregate returns the next id of the statement of SelectAggregates; ok is false at its end.
func ScanAggregate(t outbox.Table, iter *gocql.Iter) (id outbox.ID, ok bool) {
	return functions.ScanAggregate(t, iter)
}

// SelectPartition returns the statement, with its arguments, that reads the
// rows of the partition of of's row: the write time in microseconds, the
// remaining TTL in seconds (null for none), and then Columns. With a Sequence
// it reads only the rows of that number.
//
// The event must contain the fields of the partition key, usually the
// aggregate. An *UnknownKeyError names a missing one. The statement is empty if
// no row of the table can be the event's: an id does not fit into its column.
func SelectPartition(t outbox.Table, of *outbox.Event) (stmt string, args []any, err error) {
	return functions.SelectPartition(t, of)
}

// ByAggregate reports whether the partition key is the columns of the aggregate
// alone, so that an aggregate has one token.
func ByAggregate(t outbox.Table) bool { return functions.ByAggregate(t) }

// Token returns the token of the partition of an aggregate, in a table that is
// ByAggregate. The token of an id that does not fit the column is undefined.
func Token(t outbox.Table, aggregate outbox.ID) int64 { return functions.Token(t, aggregate) }

// TextToken returns the token of the partition of an aggregate with this
// published id (outbox.ID.String), in a table that is ByAggregate. The
// token of a text that does not fit the column is undefined.
func TextToken(t outbox.Table, id string) int64 { return functions.TextToken(t, id) }

// BytesToken is TextToken of bytes.
func BytesToken(t outbox.Table, id []byte) int64 { return functions.BytesToken(t, id) }

// RowToken returns the token of the partition of a row, in a table that is
// ByAggregate; ok is false if the row lacks the key.
func RowToken(t outbox.Table, r Row) (token int64, ok bool) { return functions.RowToken(t, r) }

// KeyToken returns the token of a partition with a key of one column: that of
// Murmur3Partitioner for the CQL value of the column. It does not allocate.
func KeyToken[T ~string | ~[]byte](key T) int64 { return keys.Token(key) }

// UUIDToken is KeyToken of a uuid.
func UUIDToken(key gocql.UUID) int64 { return keys.UUIDToken(key) }

// IDOf returns the UUID of an id of type text or number: deterministic, in
// every process and language. A UUID in canonical form, 36 characters in lower
// case, maps to itself; any other text, and the zero UUID, to its UUIDv5 in the
// namespace of outbox.ID.UUID.
//
// It does not allocate for a UUID or a text of up to 240 bytes.
func IDOf[T ~string | ~[]byte](text T) gocql.UUID { return keys.IDOf(text) }

// RowID returns the id of the dead letter of a row without an event id:
// deterministic for a write. table includes its keyspace, written is the write
// time in microseconds, and n is the row's number among those with the same
// write.
func RowID(table, aggregate string, seq, written int64, n int) outbox.ID {
	return outbox.NameID(keys.TextNamespace, table, aggregate, strconv.FormatInt(seq, 10), strconv.FormatInt(written, 10), strconv.Itoa(n))
}

// IDHeaders returns the keys of m.RecordHeaders with the column of the event's id, sorted.
// The publisher adds them, with ID.String: an edited dead letter has another id than its row.
func IDHeaders(m outbox.Mapping) []string { return functions.IDHeaders(m) }

// EventHeader reports whether an event may have a header with the key in Headers: every
// key except the ones set from its fields.
func EventHeader(key string) bool { return functions.EventHeader(key) }

// The values of outbox.HeaderCaptured.
const (
	// CapturedTail is the reader that follows the CDC log closely.
	CapturedTail = "tail"
	// CapturedSweep is the sweep reader, which is later and complete.
	CapturedSweep = "sweep"
	// CapturedKey is a lookup by key in the outbox table: a later event of the
	// aggregate was read first, or outbox verify requested it.
	CapturedKey = "key"
	// CapturedBackfill is a scan of the outbox table.
	CapturedBackfill = "backfill"
)
