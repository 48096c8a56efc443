package outbox

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

// DefaultTableName is the outbox table that the schema package creates.
const DefaultTableName = "outbox_messages"

// DefaultContentType is the default of Event.ContentType.
const DefaultContentType = "application/json"

// Columns are the columns of outbox_messages as the statements of this package
// name them, in the order in which the destinations of a Scanner expect them.
//
// For relays: may change in a minor version.
const Columns = "aggregate_id, seq, event_id, aggregate_type, event_type, payload, content_type, headers, created_at, deliver_at"

// Table is an outbox table. The zero value is not usable: use DefaultTable,
// NewTable, or Mapping.Table for a table with other columns. A Table is
// immutable and safe for concurrent use.
type Table struct {
	keyspace, name string
	ttl            time.Duration
	layout         *layout

	insert, insertIfNotExists, byKey, byToken string
}

// DefaultTable is outbox_messages in the session's keyspace, with the row TTL
// that the table itself has.
var DefaultTable = mustTable()

func mustTable() Table {
	t, err := NewTable("", DefaultTableName)
	if err != nil {
		panic(err)
	}
	return t
}

// identifier is an unquoted CQL name. ScyllaDB limits names to 48 characters.
var identifier = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// NewTable returns the table name in keyspace, with the columns of
// outbox_messages. An empty keyspace means that of the session, an empty name
// DefaultTableName. Names that need quotes in CQL are rejected.
func NewTable(keyspace, name string) (Table, error) {
	name = cmp.Or(name, DefaultTableName)
	if keyspace != "" && !identifier.MatchString(keyspace) {
		return Table{}, fmt.Errorf("outbox: keyspace %q: use lower-case letters, digits and _, at most 48, the first a letter", keyspace)
	}
	if !identifier.MatchString(name) {
		return Table{}, fmt.Errorf("outbox: table %q: use lower-case letters, digits and _, at most 48, the first a letter", name)
	}
	return Table{keyspace: keyspace, name: name, layout: defaultLayout}.prepare(), nil
}

// WithTTL returns t with a TTL on the rows that it writes, in whole seconds, at
// most 20 years; zero uses default_time_to_live of the table. A row must
// outlive the longest outage of the relay: it is the source of an event once
// the CDC log has expired.
func (t Table) WithTTL(ttl time.Duration) Table {
	t.ttl = min(max(ttl, 0), maxTTL)
	return t.prepare()
}

// maxTTL is the maximum of CQL: 20 years of 365 days.
const maxTTL = 630_720_000 * time.Second

func (t Table) prepare() Table {
	l := t.layout
	t.insert = "INSERT INTO " + t.String() + " (" + l.inserts + ") VALUES (" + strings.Repeat("?, ", len(l.written)-1) + "?)"
	t.insertIfNotExists = t.insert + " IF NOT EXISTS"
	t.insert += t.using()
	t.insertIfNotExists += t.using()
	if l.numbered() {
		aggregate, seq := quote(l.columns[fieldAggregateID].name), quote(l.columns[fieldSequence].name)
		rows := "SELECT writetime(" + quote(l.mark) + "), " + l.list + " FROM " + t.String() + " WHERE "
		t.byKey = rows + aggregate + " = ? AND " + seq + " >= ? AND " + seq + " < ? ORDER BY " + seq + " ASC"
		t.byToken = rows + "token(" + aggregate + ") > ? AND token(" + aggregate + ") <= ?"
	}
	return t
}

// using returns the end of an INSERT with t's TTL.
func (t Table) using() string {
	if t.ttl < time.Second {
		return ""
	}
	return fmt.Sprintf(" USING TTL %d", t.ttl/time.Second)
}

// Columns returns the columns of an event as in a statement, in the order of a
// Scanner's destinations.
//
// For relays: may change in a minor version.
func (t Table) Columns() string { return t.layout.list }

// Numbered reports whether the table's events have sequence numbers, with which
// its primary key begins after the aggregate: it can be scanned and verified.
// Otherwise the order of an aggregate's events is that of their writes.
func (t Table) Numbered() bool { return t.layout.numbered() }

// Column returns, in CQL, the name of the column that outbox_messages calls name
// (Mapping.Columns); empty if the table has none.
//
// For relays: may change in a minor version.
func (t Table) Column(name string) string {
	if f := slices.Index(fieldNames[:], name); f >= 0 && t.layout.columns[f].name != "" {
		return quote(t.layout.columns[f].name)
	}
	return ""
}

// Descending reports whether the table stores the events of an aggregate with
// the highest number first (CLUSTERING ORDER BY).
//
// For relays: may change in a minor version.
func (t Table) Descending() bool { return t.layout.columns[fieldSequence].descending }

// SelectByKey returns the statement, with its arguments, that reads the events
// of of's aggregate with from <= Sequence < to in their order, whatever that of
// the table: the write time in microseconds, and then Columns. Only a table with
// numbers has it.
//
// ScyllaDB executes it at plain consistency levels only if the table is
// Descending: SERIAL reads against the clustering order fail.
//
// For relays: may change in a minor version.
func (t Table) SelectByKey(of *Event, from, to int64) (stmt string, args []any) {
	if t.layout.columns[fieldSequence].typ == typeInt {
		clamp := func(n int64) int64 { return max(math.MinInt32, min(n, math.MaxInt32)) }
		from, to = clamp(from), clamp(to)
	}
	return t.byKey, []any{idValue(t.layout.columns[fieldAggregateID].typ, of.AggregateID), from, to}
}

// SelectByToken returns the statement, with its arguments, that reads the rows
// whose partition has a token above after, up to upTo: the write time in
// microseconds, and then Columns. The rows of an aggregate are together, in the
// order of the table (Descending). Only a table with numbers has it.
//
// For relays: may change in a minor version.
func (t Table) SelectByToken(after, upTo int64) (stmt string, args []any) {
	return t.byToken, []any{after, upTo}
}

// SelectAggregates returns the statement, with its arguments, that reads the ids
// of the aggregates in the range of tokens of SelectByToken, in the order of the
// tokens. Only a table with numbers has it.
//
// For relays: may change in a minor version.
func (t Table) SelectAggregates(after, upTo int64) (stmt string, args []any) {
	aggregate := quote(t.layout.columns[fieldAggregateID].name)
	return "SELECT DISTINCT " + aggregate + " FROM " + t.String() + " WHERE token(" + aggregate + ") > ? AND token(" + aggregate + ") <= ?", []any{after, upTo}
}

// String is the table's name as CQL writes it, with its keyspace if it has one.
func (t Table) String() string {
	if t.keyspace == "" {
		return t.name
	}
	return t.keyspace + "." + t.name
}

// Keyspace returns the keyspace of the table; empty means that of the session.
func (t Table) Keyspace() string { return t.keyspace }

// Name is the table's name without its keyspace.
func (t Table) Name() string { return t.name }
