package cdclog

import (
	"fmt"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// logRow is a row of the log; *scyllacdc.ChangeRow is one.
type logRow interface {
	outbox.Row
	GetOperation() scyllacdc.OperationType
}

// EventOf reads the event that a row of the log adds to the outbox table; ok is
// false when it adds none. An error means that there should be one and it
// cannot be read: a *outbox.RowError.
//
// Inserts are events, and so are updates that name an event id, since CQL's
// UPDATE writes whole rows too. What else an update does is none: columns
// changed afterwards, or the null columns of an insert with a TTL, which
// ScyllaDB logs as a row of their own. Deletes, images and expiry are none.
func EventOf(table *outbox.Table, row logRow) (e outbox.Event, ok bool, err error) {
	switch row.GetOperation() {
	case scyllacdc.Insert:
	case scyllacdc.Update:
		if !table.Adds(row) {
			return e, false, nil
		}
	default:
		return e, false, nil
	}
	e, err = table.FromRow(row)
	if err != nil {
		return e, false, fmt.Errorf("read a log row: %w", err) // e is what could be read
	}
	return e, true, nil
}

// BadRow gives a row that is no event what it takes to go the way of events, up
// to where it is refused: an id, and a place in its aggregate's order. Where the
// row does not say, the id follows from what is known, and is the same for the
// same write; and a row without a place goes by itself. n is its number among
// those written together. Rows without an error stay as they are.
func BadRow(table *outbox.Table, r StoredEvent, n int) StoredEvent {
	if r.Err == nil {
		return r
	}
	none := gocql.UUID{}
	if r.ID == none {
		r.ID = outbox.RowID(table.String(), r.AggregateString(), r.Sequence, r.Written, n)
	}
	if r.AggregateID == none || table.Numbered() && r.Sequence < 1 {
		r.AggregateID, r.AggregateText, r.Sequence = r.ID, "", 0
	}
	return r
}

// WriteTime is the timestamp of a change in microseconds, as WRITETIME gives it.
func WriteTime(t gocql.UUID) int64 { return t.Time().UnixMicro() }
