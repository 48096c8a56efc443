package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

// decode is rows.Decode.
func (t Table) decode(stmt string, args []any) (e Event, ok bool, err error) {
	if t.layout == nil {
		return Event{}, false, errZeroTable
	}
	list, found := strings.CutPrefix(stmt, "INSERT INTO "+t.String()+" (")
	list, _, closed := strings.Cut(list, ") VALUES (")
	names := strings.Split(list, ", ")
	if !found || !closed || len(names) != len(args) {
		return Event{}, false, nil
	}
	aggregate := &t.layout.columns[fieldAggregateID]
	parts := make([]string, len(aggregate.parts))
	for i, name := range names {
		known := false
		for n := range aggregate.parts {
			if quote(aggregate.parts[n].name) == name {
				var id ID
				known = true
				if err := assignID(&id, args[i]); err != nil {
					return Event{}, true, fmt.Errorf("outbox: argument %d of the INSERT into %s: %w", i+1, t, err)
				}
				parts[n] = id.String()
			}
		}
		for f := range t.layout.columns {
			if c := &t.layout.columns[f]; c.name != "" && c.parts == nil && quote(c.name) == name {
				known = true
				if err := c.assign(field(f), &e, args[i]); err != nil {
					return Event{}, true, fmt.Errorf("outbox: argument %d of the INSERT into %s: %w", i+1, t, err)
				}
			}
		}
		if !known {
			return Event{}, false, nil
		}
	}
	var bad error
	if aggregate.parts != nil {
		e.AggregateID, bad = aggregate.join(parts)
	}
	err = t.layout.complete(&e, bad, func(*recordHeader) (string, bool, error) { return "", false, nil })
	return e, true, err
}

// assign sets a field of e to an argument as value or plainValue made it.
func (c *column) assign(f field, e *Event, v any) error {
	switch f {
	case fieldAggregateID:
		return assignID(&e.AggregateID, v)
	case fieldID:
		return assignID(&e.ID, v)
	case fieldCreatedAt:
		return assignTime(&e.CreatedAt, v)
	case fieldDeliverAt:
		return assignTime(&e.DeliverAt, v)
	case fieldSequence:
		return assign(&e.Sequence, v)
	case fieldAggregateType:
		return assign(&e.AggregateType, v)
	case fieldType:
		return assign(&e.Type, v)
	case fieldContentType:
		return assign(&e.ContentType, v)
	case fieldPayload:
		return assign(&e.Payload, v)
	default:
		switch m := v.(type) {
		case headerMap:
			v = map[string]string(m)
		case string:
			headers, problem := parseHeaders(m)
			if problem != "" {
				return errors.New(problem)
			}
			v = headers
		}
		return assign(&e.Headers, v)
	}
}

// assign sets a field to an argument; an unset one leaves it.
func assign[T any](to *T, v any) error {
	if v == gocql.UnsetValue {
		return nil
	}
	got, ok := v.(T)
	if !ok {
		return fmt.Errorf("is a %T, not a %T", v, *to)
	}
	*to = got
	return nil
}

func assignID(id *ID, v any) error {
	switch v := v.(type) {
	case gocql.UUID:
		*id = IDFromUUID(v)
	case [16]byte:
		*id = IDFromUUID(v)
	case string:
		*id = IDFromText(v)
	case int64:
		*id = IDFromInt(v)
	default:
		return fmt.Errorf("is a %T, no id", v)
	}
	return nil
}

func assignTime(to *time.Time, v any) error {
	switch v := v.(type) {
	case int64:
		*to = time.UnixMilli(v).UTC()
	case string:
		t, problem := parseTime(typeText, v)
		if problem != "" {
			return errors.New(problem)
		}
		*to = t
	case time.Time:
		*to = v.UTC()
	case gocql.UUID:
		*to = v.Time().UTC().Truncate(time.Millisecond)
	case [16]byte:
		*to = gocql.UUID(v).Time().UTC().Truncate(time.Millisecond)
	default:
		return assign(to, v)
	}
	return nil
}
