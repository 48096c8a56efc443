package outbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Outline returns t without the large fields: payload, content type, headers
// and delivery time. It is for searching events; it cannot write.
//
// For relays: may change in a minor version.
func (t Table) Outline() Table {
	l := &layout{
		columns: t.layout.columns, aggregateType: t.layout.aggregateType, eventType: t.layout.eventType,
		partition: t.layout.partition, unmapped: t.layout.unmapped,
	}
	for _, f := range []field{fieldPayload, fieldContentType, fieldHeaders, fieldDeliverAt} {
		l.columns[f] = column{}
	}
	l.prepare()
	l.mark = t.layout.mark // it may be the payload
	t.layout = l
	return t.prepare()
}

// SelectPartition returns the statement, with its arguments, that reads the
// rows of the partition of of's row: the write time in microseconds, the
// remaining TTL in seconds (null for none), and then Columns. With a Sequence
// it reads only the rows of that number.
//
// The event must contain the fields of the partition key, usually the
// aggregate. An *UnknownKeyError names a missing one. The statement is empty if
// no row of the table can be the event's: an id does not fit into its column.
//
// For relays: may change in a minor version.
func (t Table) SelectPartition(of *Event) (stmt string, args []any, err error) {
	l := t.layout
	where := make([]string, 0, len(l.partition)+1)
	for _, name := range l.partition {
		f := slices.IndexFunc(l.columns[:], func(c column) bool { return c.name == name })
		if f < 0 {
			return "", nil, &UnknownKeyError{t.String(), name, "which is not a field of an event"}
		}
		v, missing, fits := l.columns[f].keyValue(field(f), of)
		switch {
		case missing:
			return "", nil, &UnknownKeyError{t.String(), name, "the event's " + fieldNames[f] + ", which is not known"}
		case !fits:
			return "", nil, nil
		}
		where, args = append(where, quote(name)+" = ?"), append(args, v)
	}
	if l.numbered() && of.Sequence > 0 {
		where, args = append(where, quote(l.columns[fieldSequence].name)+" = ?"), append(args, of.Sequence)
	}
	mark := quote(l.mark)
	return "SELECT WRITETIME(" + mark + "), TTL(" + mark + "), " + l.list + " FROM " + t.String() + " WHERE " + strings.Join(where, " AND "), args, nil
}

// keyValue returns the event's value of a column of the partition key. missing
// reports that the event lacks it, fits whether the column can contain it.
func (c *column) keyValue(f field, of *Event) (v any, missing, fits bool) {
	id := func(id ID) (any, bool, bool) {
		if id.IsZero() {
			return nil, true, true
		}
		return idValue(c.typ, id), false, id.fits(c.typ)
	}
	switch f {
	case fieldAggregateID:
		return id(of.AggregateID)
	case fieldID:
		return id(of.ID)
	case fieldAggregateType:
		return of.AggregateType, of.AggregateType == "", true
	case fieldType:
		return of.Type, of.Type == "", true
	case fieldSequence:
		return of.Sequence, of.Sequence == 0, true
	default:
		return nil, true, true // a time, or another type without use in partition keys
	}
}

// fits reports whether a column of a type can contain the id.
func (id *ID) fits(typ columnType) bool {
	switch typ {
	case typeUUID, typeTimeUUID:
		return id.text == ""
	case typeInt, typeBigint:
		_, err := strconv.ParseInt(id.text, 10, bits(typ))
		return err == nil
	default:
		return true
	}
}

// UnknownKeyError reports that the partition of an event's row is unknown.
//
// For relays: may change in a minor version.
type UnknownKeyError struct {
	// Table is the table with its keyspace, Column a column of its partition key.
	Table, Column string
	// Problem describes the content of the column.
	Problem string
}

// Error contains the table, the column and the problem.
//
// For relays: may change in a minor version.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("outbox table %s: its rows are found by column %s, %s", e.Table, e.Column, e.Problem)
}
