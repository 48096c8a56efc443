package outbox

import (
	"errors"
	"time"

	"github.com/gocql/gocql"
)

// Append adds the INSERT of e to b, for the outbox_messages table of b's
// session. The caller adds its own statements to the same batch; executed as a
// logged batch, all or none of them are applied:
//
//	b := session.NewBatch(gocql.LoggedBatch)
//	b.Query("INSERT INTO invoices (id, total) VALUES (?, ?)", id, total)
//	if err := outbox.Append(b, event); err != nil { … }
//	err := session.ExecuteBatch(b)
//
// Append overwrites an event with the same aggregate and number. Use it for event 1 of an
// aggregate whose id you have just made, or with one writer per aggregate; for everything else
// use Appender.AppendNext. An INSERT with IF makes a batch conditional, and then all of its
// statements must write one partition of one table.
//
// Append does not access the database. It leaves b unchanged and returns an error if b is nil,
// if it is not a logged batch (a *BatchTypeError), or if e cannot be stored and published (an
// *InvalidEventError).
//
// Write at LOCAL_QUORUM or more: a weaker write can leave the CDC row on a
// single replica, where the relay may never read it. After a timeout, retry the
// same batch with the same event and timestamp for some seconds, and later with
// a new timestamp: the relay does not read a row that becomes visible with a
// timestamp older than its confidence window. The relay publishes an event id
// once, however often its row is written.
func Append(b *gocql.Batch, e Event) error { return DefaultTable.Append(b, e) }

// errZeroTable reports a Table that no constructor has made.
var errZeroTable = errors.New("outbox: the Table is its zero value: use DefaultTable, NewTable or Mapping.Table")

// BatchTypeError reports a batch that can lose the event, or a part of what it belongs to.
type BatchTypeError struct {
	Type gocql.BatchType
}

// Error implements error.
func (e *BatchTypeError) Error() string {
	if e.Type == gocql.CounterBatch {
		return "outbox: the batch is a counter batch: a counter cannot be updated together with an event; use a logged batch of other tables"
	}
	return "outbox: the batch is unlogged: after a failure some of its partitions can be written without the event, or the event without them; use gocql.LoggedBatch"
}

// Append adds the INSERT of e to b for this table. Columns of the table that
// the mapping does not contain stay unset. See the function Append.
func (t Table) Append(b *gocql.Batch, e Event) error {
	switch {
	case b == nil:
		return errors.New("outbox: the batch is nil: make one with session.NewBatch(gocql.LoggedBatch)")
	case b.Type != gocql.LoggedBatch:
		return &BatchTypeError{Type: b.Type}
	}
	args, err := t.arguments(e, time.Now())
	if err != nil {
		return err
	}
	b.Query(t.insert, args...)
	return nil
}

// Insert returns the INSERT of e with its arguments, for drivers and wrappers that have no
// *gocql.Batch. It names the columns that are set, with values of the types [16]byte, string,
// int64, []byte, time.Time and map[string]string; t's TTL is in the statement. See Append for
// what it overwrites and how to execute it.
func (t Table) Insert(e Event) (stmt string, args []any, err error) { return t.statement(e, "") }

// InsertIfNotExists is Insert with the condition IF NOT EXISTS, for the ways to add
// event n+1 that AppendNext does not have: a conditional batch of state and event in one
// partition, or another driver. It is one part of the protocol of AppendNext
// (docs/protocol.md), and alone it loses
// events: an insert without a response may be decided and stay invisible, and then appears with
// a time that the relay has passed.
//
// ScyllaDB ignores client timestamps in conditional statements. A *MappingError refuses a table
// whose key continues behind the sequence number.
func (t Table) InsertIfNotExists(e Event) (stmt string, args []any, err error) {
	if err := t.columnLayout().checkConditional(t.String()); err != nil {
		return "", nil, err
	}
	return t.statement(e, " IF NOT EXISTS")
}

// statement returns an INSERT of the columns that e sets.
func (t Table) statement(e Event, condition string) (stmt string, args []any, err error) {
	all, err := t.arguments(e, time.Now())
	if err != nil {
		return "", nil, err
	}
	var names []string
	for i, c := range t.layout.inserts {
		if all[i] != gocql.UnsetValue {
			names, args = append(names, c.name), append(args, c.plain(all[i]))
		}
	}
	return t.insertInto(names, condition), args, nil
}

// plain returns an argument in a type that every driver knows.
func (c *insertColumn) plain(v any) any {
	switch v := v.(type) {
	case gocql.UUID:
		return [16]byte(v)
	case headerMap:
		return map[string]string(v)
	case int64:
		if c.typ == typeTimestamp {
			return time.UnixMilli(v).UTC()
		}
	}
	return v
}
