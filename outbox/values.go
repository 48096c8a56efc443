package outbox

import (
	"strconv"
	"time"

	"github.com/gocql/gocql"
)

// arguments are the arguments of the table's INSERT of e, which is written now; a zero now means
// that it is stored already. Such an event may be of a writer in another language, with content
// that a new one may not have: the relay decides what becomes of it.
func (t Table) arguments(e Event, now time.Time) ([]any, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	var bad InvalidEventError
	if now.IsZero() {
		t.validatePlace(&e, &bad)
	} else {
		t.validate(&e, &bad)
		bad.delay(e.DeliverAt, now)
	}
	if bad.Fields != nil {
		return nil, &bad
	}
	if err := t.layout.writable(t.String()); err != nil {
		return nil, err
	}
	return t.layout.values(&e), nil
}

// values returns the arguments for the columns of the layout. Empty values are
// unset rather than null, to write no tombstone and no deletion in the CDC log.
func (l *layout) values(e *Event) []any {
	out := make([]any, 0, len(l.written))
	for _, f := range l.written {
		if c := &l.columns[f]; c.parts != nil {
			out = append(out, c.arguments(e.AggregateID)...)
		} else {
			out = append(out, c.value(f, e))
		}
	}
	return out
}

func (c *column) value(f field, e *Event) any {
	switch f {
	case fieldAggregateID:
		return idValue(c.typ, e.AggregateID)
	case fieldID:
		return idValue(c.typ, e.ID)
	case fieldSequence:
		return e.Sequence
	case fieldAggregateType:
		return e.AggregateType
	case fieldType:
		return e.Type
	case fieldContentType:
		if e.ContentType == "" {
			return DefaultContentType
		}
		return e.ContentType
	case fieldHeaders:
		if len(e.Headers) == 0 {
			return gocql.UnsetValue
		}
		if c.typ == typeText {
			return jsonHeaders(e.Headers)
		}
		return headerMap(e.Headers)
	case fieldCreatedAt:
		return c.timeValue(e.CreatedAt, e)
	case fieldDeliverAt:
		return c.timeValue(e.DeliverAt, e)
	default:
		if e.Payload == nil {
			return gocql.UnsetValue // null would write a tombstone of CQL
		}
		return e.Payload
	}
}

// timeValue returns a time in the type of its column.
func (c *column) timeValue(t time.Time, e *Event) any {
	switch {
	case t.IsZero():
		return gocql.UnsetValue
	case c.typ == typeTimeUUID:
		return timeUUID(t, e.ID.uuid)
	case c.typ == typeText:
		return t.UTC().Format(timeFormat)
	}
	return t.UnixMilli()
}

// idValue returns an id in the type of its column.
func idValue(typ columnType, id ID) any {
	switch typ {
	case typeUUID, typeTimeUUID:
		return id.uuid
	case typeText:
		return id.String()
	default:
		n, _ := strconv.ParseInt(id.text, 10, 64) // Validate rejects other texts
		return n
	}
}

// timeUUID is the same for the same event, so that a retry writes the same row.
func timeUUID(t time.Time, id gocql.UUID) gocql.UUID {
	u := gocql.MinTimeUUID(t)
	copy(u[9:], id[9:])
	return u
}
