package cdclog

import (
	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// logRow is a row of the log, such as a *scyllacdc.ChangeRow.
type logRow interface {
	rows.Row
	GetOperation() scyllacdc.OperationType
}

// DecodeEvent returns the event that a row of the log, written at a time, adds to the outbox table; ok is false
// if it adds none. It returns a *rows.RowError if the row adds an event that cannot be
// read, or that is due too long after its write.
//
// Inserts add events, and so do updates that set an event id, since CQL's UPDATE writes
// whole rows too. Other updates add none: they are later changes of columns, or the null
// columns of an insert with a TTL, which ScyllaDB logs as a separate row. Deletes, images
// and expiry add none.
func DecodeEvent(table *outbox.Table, row logRow, at gocql.UUID) (e outbox.Event, ok bool, err error) {
	switch row.GetOperation() {
	case scyllacdc.Insert:
	case scyllacdc.Update:
		if !rows.Adds(*table, row) {
			return e, false, nil
		}
	default:
		return e, false, nil
	}
	if e, err = rows.FromRow(*table, row); err == nil {
		err = rows.CheckDelay(*table, &e, at.Time())
	}
	if err != nil {
		// As ScanEvent returns it, so that the dead letters of a problem form one group whatever
		// reader met the row. e contains the readable columns.
		return e, false, err
	}
	return e, true, nil
}

// BadRow completes an unreadable row so that it can be processed like an event until it
// is rejected: it sets an id and a place in the order of its aggregate. A missing id is
// derived from the known columns: it is the same for each read of a row with a number, and
// otherwise for the same write. A row without a place becomes its own aggregate. n is its number
// among the rows written together.
// BadRow returns rows without an error unchanged.
func BadRow(table *outbox.Table, r StoredEvent, n int) StoredEvent {
	if r.Err == nil {
		return r
	}
	if r.ID.IsZero() {
		written := r.Written
		if table.Numbered() && !r.AggregateID.IsZero() && r.Sequence != 0 {
			written, n = 0, 0 // a read of the table does not know them
		}
		r.ID = rows.RowID(table.String(), r.AggregateID.String(), r.Sequence, written, n)
	}
	if r.AggregateID.IsZero() || table.Numbered() && r.Sequence < 1 {
		r.AggregateID, r.Sequence = r.ID, 0
	}
	return r
}

// WriteTime returns the timestamp of a change in microseconds, as WRITETIME does.
func WriteTime(t gocql.UUID) int64 { return t.Time().UnixMicro() }
