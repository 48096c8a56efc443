package outbox

import (
	"cmp"
	"fmt"
	"regexp"
	"time"

	"github.com/gocql/gocql"
)

// DefaultTableName is the outbox table that the schema package creates.
const DefaultTableName = "outbox_messages"

// DefaultContentType is what an Event without a ContentType has.
const DefaultContentType = "application/json"

// Columns are the columns of an outbox table as the statements of this package
// name them, in the order in which Scanner.Dest expects them.
const Columns = "aggregate_id, seq, event_id, aggregate_type, event_type, payload, content_type, headers, created_at, deliver_at"

const placeholders = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?"

// Table is an outbox table. The zero value is not usable: take DefaultTable or
// call NewTable. A Table is immutable and safe for concurrent use.
type Table struct {
	keyspace, name string
	ttl            time.Duration

	insert, insertIfNotExists string
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

// NewTable returns the table name in keyspace; an empty keyspace means that of
// the session, an empty name DefaultTableName. Names that CQL would have to
// quote are refused.
func NewTable(keyspace, name string) (Table, error) {
	name = cmp.Or(name, DefaultTableName)
	if keyspace != "" && !identifier.MatchString(keyspace) {
		return Table{}, fmt.Errorf("outbox: keyspace %q: use lower-case letters, digits and _, at most 48, the first a letter", keyspace)
	}
	if !identifier.MatchString(name) {
		return Table{}, fmt.Errorf("outbox: table %q: use lower-case letters, digits and _, at most 48, the first a letter", name)
	}
	return Table{keyspace: keyspace, name: name}.prepare(), nil
}

// WithTTL returns t with a TTL of its own on the rows it writes, in whole
// seconds, at most 20 years; zero goes back to the table's default_time_to_live.
// A row must outlive the longest outage of the relay: it is what an event is
// recovered from once the CDC log has expired.
func (t Table) WithTTL(ttl time.Duration) Table {
	t.ttl = min(max(ttl, 0), maxTTL)
	return t.prepare()
}

// maxTTL is the most that CQL takes: 20 years of 365 days.
const maxTTL = 630_720_000 * time.Second

func (t Table) prepare() Table {
	t.insert = "INSERT INTO " + t.String() + " (" + Columns + ") VALUES (" + placeholders + ")"
	t.insertIfNotExists = t.insert + " IF NOT EXISTS"
	if t.ttl >= time.Second {
		using := fmt.Sprintf(" USING TTL %d", t.ttl/time.Second)
		t.insert += using
		t.insertIfNotExists += using
	}
	return t
}

// String is the table's name as CQL writes it, with its keyspace if it has one.
func (t Table) String() string {
	if t.keyspace == "" {
		return t.name
	}
	return t.keyspace + "." + t.name
}

// Keyspace is the table's keyspace; empty means that of the session.
func (t Table) Keyspace() string { return t.keyspace }

// Name is the table's name without its keyspace.
func (t Table) Name() string { return t.name }

// InsertIfNotExists returns the conditional INSERT of e with its arguments: the
// way to add event n+1 of an aggregate when others may do so at the same time.
// Of all who insert one (AggregateID, Sequence), one is applied. After a timeout
// the outcome is unknown until the row was read at SERIAL; compare its event_id.
//
// ScyllaDB ignores client timestamps in conditional statements.
func (t Table) InsertIfNotExists(e Event) (stmt string, args []any, err error) {
	if err := e.Validate(); err != nil {
		return "", nil, err
	}
	return t.insertIfNotExists, values(&e), nil
}

// values are the arguments for Columns. What is empty is left unset rather than
// null, so that it writes no tombstone and, in the CDC log, no deletion.
func values(e *Event) []any {
	contentType := e.ContentType
	if contentType == "" {
		contentType = DefaultContentType
	}
	var hs, deliverAt any = gocql.UnsetValue, gocql.UnsetValue
	if len(e.Headers) > 0 {
		hs = headerMap(e.Headers)
	}
	if !e.DeliverAt.IsZero() {
		deliverAt = e.DeliverAt.UnixMilli()
	}
	payload := e.Payload
	if payload == nil {
		payload = []byte{} // null would write a tombstone
	}
	return []any{
		e.AggregateID, e.Sequence, e.ID, e.AggregateType, e.Type,
		payload, contentType, hs, e.CreatedAt.UnixMilli(), deliverAt,
	}
}
