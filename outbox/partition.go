package outbox

import (
	"slices"
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/access"
)

// outline is rows.Outline.
func (t Table) outline() Table {
	if t.layout == nil {
		return t
	}
	l := &layout{
		columns: t.layout.columns, aggregateType: t.layout.aggregateType, eventType: t.layout.eventType,
		partition: t.layout.partition, unmapped: t.layout.unmapped,
	}
	for _, h := range t.layout.headers { // the topic of a row belongs to its outline
		if h.key == HeaderTopic {
			l.headers = append(l.headers, h)
		}
	}
	for _, f := range []field{fieldPayload, fieldContentType, fieldHeaders, fieldDeliverAt} {
		l.columns[f] = column{}
	}
	l.prepare()
	l.mark = t.layout.mark // it may be the payload
	t.layout = l
	return t.prepare()
}

// selectPartition is rows.SelectPartition.
func (t Table) selectPartition(of *Event) (stmt string, args []any, err error) {
	if t.layout == nil {
		return "", nil, errZeroTable
	}
	if of == nil {
		return "", nil, t.invalid(of, nil)
	}
	l := t.layout
	where := make([]string, 0, len(l.partition)+1)
	for _, name := range l.partition {
		f := slices.IndexFunc(l.columns[:], func(c column) bool { return c.has(name) })
		if f < 0 {
			return "", nil, &access.UnknownKeyError{Table: t.String(), Column: name, Problem: "which is not a field of an event"}
		}
		v, missing, fits := l.columns[f].keyValue(field(f), name, of)
		switch {
		case missing:
			return "", nil, &access.UnknownKeyError{Table: t.String(), Column: name, Problem: "the event's " + fieldNames[f] + ", which is not known"}
		case !fits:
			return "", nil, nil
		}
		where, args = append(where, quote(name)+" = ?"), append(args, v)
	}
	if l.hasNumbers() && of.Sequence > 0 {
		where, args = append(where, quote(l.columns[fieldSequence].name)+" = ?"), append(args, of.Sequence)
	}
	mark := quote(l.mark)
	return "SELECT WRITETIME(" + mark + "), TTL(" + mark + "), " + l.list + " FROM " + t.String() + " WHERE " + strings.Join(where, " AND "), args, nil
}

// keyValue returns the event's value of a column of the partition key, with this name. missing
// reports that the event lacks it, fits whether the column can contain it.
func (c *column) keyValue(f field, name string, of *Event) (v any, missing, fits bool) {
	id := func(id ID) (any, bool, bool) {
		if id.IsZero() {
			return nil, true, true
		}
		return idValue(c.typ, id), false, id.fits(c.typ)
	}
	switch f {
	case fieldAggregateID:
		if of.AggregateID.IsZero() || c.parts == nil {
			return id(of.AggregateID)
		}
		_, fits := c.split(of.AggregateID)
		i := slices.IndexFunc(c.parts, func(p column) bool { return p.name == name })
		return c.arguments(of.AggregateID)[i], false, fits
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
