package outbox

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/keys"
)

// scanner is a rows.Scanner.
type scanner struct {
	layout  *layout
	e       Event
	headers headerMap
	texts   []textScan // of the columns of record headers alone
	parts   []textScan // of an aggregate with several columns
	// Columns whose text is read as headers or as a time.
	json, created, deliver textScan
	dest                   []any
}

// scanner is rows.NewScanner.
func (t Table) scanner() *scanner { return &scanner{layout: t.columnLayout()} }

// Dest returns the destinations of the columns, in their order, for Iter.Scan.
// A query with more columns appends or prepends its own destinations.
//
// Each is a pointer to a gocql.UUID, int64, time.Time, string or []byte whose
// column has exactly that type, or a gocql.Unmarshaler that ignores null.
func (s *scanner) Dest() []any {
	// A scan does not change the destination of a null, and gocql reuses an
	// existing byte slice; both must be empty before.
	s.e, s.headers = Event{}, nil
	for i := range s.texts {
		s.texts[i].ok = false
	}
	for i := range s.parts {
		s.parts[i].ok = false
	}
	s.json.ok, s.created.ok, s.deliver.ok = false, false, false
	if s.dest == nil {
		for _, f := range s.layout.fields {
			c := &s.layout.columns[f]
			if c.parts == nil {
				s.dest = append(s.dest, s.destination(f, c.typ))
				continue
			}
			s.parts = make([]textScan, len(c.parts))
			for i := range s.parts {
				s.parts[i].typ = c.parts[i].typ
				s.dest = append(s.dest, &s.parts[i])
			}
		}
		s.texts = make([]textScan, 0, len(s.layout.headers)) // the destinations point into it
		for _, h := range s.layout.headers {
			if h.field == fieldCount {
				s.texts = append(s.texts, textScan{typ: h.column.typ})
				s.dest = append(s.dest, &s.texts[len(s.texts)-1])
			}
		}
	}
	return s.dest
}

func (s *scanner) destination(f field, typ columnType) any {
	switch f {
	case fieldAggregateID:
		if typ == typeUUID || typ == typeTimeUUID {
			return &s.e.AggregateID.uuid
		}
		return &idScan{typ, &s.e.AggregateID}
	case fieldID:
		if typ == typeUUID || typ == typeTimeUUID {
			return &s.e.ID.uuid
		}
		return &idScan{typ, &s.e.ID}
	case fieldSequence:
		if typ == typeBigint {
			return &s.e.Sequence
		}
		return &intScan{&s.e.Sequence}
	case fieldAggregateType:
		return &s.e.AggregateType
	case fieldType:
		return &s.e.Type
	case fieldPayload:
		return &s.e.Payload
	case fieldContentType:
		return &s.e.ContentType
	case fieldHeaders:
		if typ == typeText {
			s.json.typ = typ
			return &s.json
		}
		return &s.headers
	case fieldCreatedAt:
		if typ == typeTimeUUID {
			return &timeUUIDScan{&s.e.CreatedAt}
		}
		return timeDestination(&s.e.CreatedAt, &s.created, typ)
	default:
		return timeDestination(&s.e.DeliverAt, &s.deliver, typ)
	}
}

// timeDestination returns t for a timestamp, else text.
func timeDestination(t *time.Time, text *textScan, typ columnType) any {
	if typ == typeTimestamp {
		return t
	}
	text.typ = typ
	return text
}

// Event returns the event of the row that was scanned last, or a *rowError.
// It resets the scanner for the next row.
func (s *scanner) Event() (Event, error) {
	e := s.e
	e.Headers = s.headers
	s.e, s.headers = Event{}, nil
	if s.layout == noLayout {
		return Event{}, errZeroTable
	}
	bad := s.decode(&e)
	next := 0
	return e, s.layout.complete(&e, bad, func(*recordHeader) (string, bool, error) {
		d := &s.texts[next]
		next++
		return d.text, d.ok, nil
	})
}

// decode sets the fields that were scanned as text. It returns the first problem of them.
func (s *scanner) decode(e *Event) (bad error) {
	columns := &s.layout.columns
	note := func(err error) {
		if bad == nil {
			bad = err
		}
	}
	if s.parts != nil {
		id, err := columns[fieldAggregateID].join(texts(s.parts))
		e.AggregateID = id
		note(err)
	}
	var problem string
	if s.json.ok {
		e.Headers, problem = parseHeaders(s.json.text)
		note(columns[fieldHeaders].problem(problem))
	}
	if s.created.ok {
		e.CreatedAt, problem = parseTime(s.created.typ, s.created.text)
		note(columns[fieldCreatedAt].problem(problem))
	}
	if s.deliver.ok {
		e.DeliverAt, problem = parseTime(s.deliver.typ, s.deliver.text)
		note(columns[fieldDeliverAt].problem(problem))
	}
	return bad
}

// Adds is Table.adds for the row that was scanned last. Call it before Event.
func (s *scanner) Adds() bool {
	switch l := s.layout; {
	case l.columns[l.marker].key:
		return true
	case l.marker == fieldID:
		return !s.e.ID.IsZero()
	case l.marker == fieldType:
		return s.e.Type != ""
	case l.marker == fieldPayload:
		return s.e.Payload != nil
	default:
		return s.e.AggregateType != ""
	}
}

// idScan reads an id that is not a UUID.
type idScan struct {
	typ columnType
	id  *ID
}

// UnmarshalCQL reads the id as text.
func (d *idScan) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	switch {
	case len(data) == 0:
		return nil
	case d.typ == typeText:
		if u, ok := keys.ParseUUID(data); ok { // without an allocation
			*d.id = ID{uuid: u}
		} else {
			*d.id = IDFromText(string(data))
		}
		return nil
	}
	n, err := integer(data)
	if err == nil {
		*d.id = IDFromInt(n)
	}
	return err
}

// intScan reads an integer.
type intScan struct{ n *int64 }

// UnmarshalCQL reads an int or a bigint.
func (d *intScan) UnmarshalCQL(_ gocql.TypeInfo, data []byte) (err error) {
	if len(data) > 0 {
		*d.n, err = integer(data)
	}
	return err
}

func integer(data []byte) (int64, error) {
	switch len(data) {
	case 1:
		return int64(int8(data[0])), nil
	case 2:
		return int64(int16(binary.BigEndian.Uint16(data))), nil
	case 4:
		return int64(int32(binary.BigEndian.Uint32(data))), nil
	case 8:
		return int64(binary.BigEndian.Uint64(data)), nil
	default:
		return 0, fmt.Errorf("outbox: an integer has %d bytes", len(data))
	}
}

// timeUUIDScan reads the time of a timeuuid.
type timeUUIDScan struct{ t *time.Time }

// UnmarshalCQL reads the time, truncated to milliseconds.
func (d *timeUUIDScan) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if len(data) != 16 {
		return fmt.Errorf("outbox: a timeuuid has %d bytes", len(data))
	}
	*d.t = gocql.UUID(data).Time().UTC().Truncate(time.Millisecond)
	return nil
}
