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

// Table is an outbox table. The zero value is not usable: use DefaultTable,
// NewTable, or Mapping.Table for a table with other columns. A Table is
// immutable and safe for concurrent use.
type Table struct {
	keyspace, name string
	ttl            time.Duration
	layout         *layout // nil in the zero value alone; see described

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
//
// Every function that writes with the result, NewAppender and Validate return an error for
// another TTL.
func (t Table) WithTTL(ttl time.Duration) Table {
	t.ttl = ttl
	return t.prepare()
}

// usable returns the error of a Table that cannot write.
func (t Table) usable() error {
	switch {
	case t.layout == nil:
		return errZeroTable
	case t.ttl < 0 || t.ttl > maxTTL || t.ttl%time.Second != 0:
		return fmt.Errorf("outbox: TTL %s of table %s: pass whole seconds to WithTTL, at most %s; 0 uses default_time_to_live of the table", t.ttl, t, maxTTL)
	}
	return nil
}

// columnLayout returns the columns of t; the zero value has none.
func (t Table) columnLayout() *layout { return cmp.Or(t.layout, noLayout) }

var noLayout = new(layout)

// maxTTL is the maximum of CQL: 20 years of 365 days.
const maxTTL = 630_720_000 * time.Second

func (t Table) prepare() Table {
	l := t.layout
	if l == nil {
		return t
	}
	names := make([]string, len(l.inserts))
	for i, c := range l.inserts {
		names[i] = c.name
	}
	t.insert = t.insertInto(names, "")
	t.insertIfNotExists = t.insertInto(names, " IF NOT EXISTS")
	if l.hasNumbers() {
		seq := quote(l.columns[fieldSequence].name)
		rows := "SELECT writetime(" + quote(l.mark) + "), " + l.list + " FROM " + t.String() + " WHERE "
		t.byKey = rows + l.columns[fieldAggregateID].where() + " AND " + seq + " >= ? AND " + seq + " < ? ORDER BY " + seq + " ASC"
		t.byToken = rows + t.ring()
	}
	return t
}

// insertInto returns an INSERT of columns.
func (t Table) insertInto(names []string, condition string) string {
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ")
	return "INSERT INTO " + t.String() + " (" + strings.Join(names, ", ") + ") VALUES (" + marks + ")" + condition + t.using()
}

// ring returns the condition on the tokens of partitions.
func (t Table) ring() string {
	key := make([]string, len(t.columnLayout().partition))
	for i, name := range t.columnLayout().partition {
		key[i] = quote(name)
	}
	token := "token(" + strings.Join(key, ", ") + ")"
	return token + " > ? AND " + token + " <= ?"
}

// using returns the end of an INSERT with t's TTL.
func (t Table) using() string {
	if t.ttl == 0 {
		return ""
	}
	return fmt.Sprintf(" USING TTL %d", t.ttl/time.Second)
}

// Numbered reports whether the table's events have sequence numbers, with which
// its primary key begins after the aggregate: it can be scanned and verified.
// Otherwise the order of an aggregate's events is that of their writes.
func (t Table) Numbered() bool { return t.columnLayout().hasNumbers() }

// column is rows.Column.
func (t Table) column(name string) string {
	if f := slices.Index(fieldNames[:], name); f >= 0 && t.columnLayout().columns[f].name != "" {
		return t.columnLayout().columns[f].quoteNames()
	}
	return ""
}

// selectByKey is rows.SelectByKey.
func (t Table) selectByKey(of *Event, from, to int64) (stmt string, args []any) {
	if t.byKey == "" || of == nil {
		return "", nil
	}
	if t.columnLayout().columns[fieldSequence].typ == typeInt {
		clamp := func(n int64) int64 { return max(math.MinInt32, min(n, math.MaxInt32)) }
		from, to = clamp(from), clamp(to)
	}
	return t.byKey, append(t.columnLayout().columns[fieldAggregateID].arguments(of.AggregateID), from, to)
}

// selectByToken is rows.SelectByToken.
func (t Table) selectByToken(after, upTo int64) (stmt string, args []any) {
	if t.byToken == "" {
		return "", nil
	}
	return t.byToken, []any{after, upTo}
}

// selectAggregates is rows.SelectAggregates.
func (t Table) selectAggregates(after, upTo int64) (stmt string, args []any) {
	if t.byToken == "" {
		return "", nil
	}
	return "SELECT DISTINCT " + t.columnLayout().columns[fieldAggregateID].quoteNames() + " FROM " + t.String() + " WHERE " + t.ring(), []any{after, upTo}
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
