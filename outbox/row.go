package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

// fromRow is rows.FromRow.
func (t Table) fromRow(r row) (Event, error) {
	if t.layout == nil {
		return Event{}, errZeroTable
	}
	if r == nil {
		return Event{}, errors.New("outbox: the row is nil")
	}
	l := t.layout
	var e Event
	var bad error
	for _, f := range l.fields {
		if err := l.columns[f].read(r, f, &e); err != nil && bad == nil {
			bad = err
		}
	}
	return e, l.complete(&e, bad, func(h *recordHeader) (string, bool, error) { return h.column.text(r) })
}

// adds is rows.Adds.
func (t Table) adds(r row) bool {
	l := t.columnLayout()
	c := l.columns[l.marker]
	if r == nil {
		return false
	}
	if c.key {
		return true
	}
	v, found := r.GetValue(c.name)
	if !found {
		return true // fromRow reports the error
	}
	switch v := v.(type) {
	case nil:
		return false
	case *gocql.UUID:
		return v != nil
	case *string:
		return v != nil
	case *int64:
		return v != nil
	case *int:
		return v != nil
	case []byte:
		return v != nil
	default:
		return true
	}
}

// complete sets omitted fields and record headers, and rejects invalid values.
// bad is the previous error of the row. text returns the value of a header's
// column that belongs to no field; ok is false for null.
func (l *layout) complete(e *Event, bad error, text func(*recordHeader) (value string, ok bool, err error)) error {
	if e.AggregateType == "" {
		e.AggregateType = l.aggregateType
	}
	if e.Type == "" {
		e.Type = l.eventType
	}
	if _, ok := e.Headers[HeaderTopic]; ok { // no writer names the topic in the headers of a row
		e.Headers = maps.Clone(e.Headers)
		delete(e.Headers, HeaderTopic)
	}
	refusedHeader := findInvalidHeader(e)
	if e.ContentType == "" { // a table without a column for it may have it there
		e.ContentType = cmp.Or(contentTypeHeader(e.Headers), DefaultContentType)
	}
	if err := l.addHeaders(e, text); err != nil && bad == nil {
		bad = err
	}
	if len(e.Headers) == 0 {
		e.Headers = nil
	}
	problem := func(f field, text string) {
		if bad == nil {
			bad = &rowError{Column: cmp.Or(l.columns[f].name, fieldNames[f]), Problem: text}
		}
	}
	if e.ID.IsZero() {
		problem(fieldID, "is null or zero")
	}
	if e.AggregateID.IsZero() {
		problem(fieldAggregateID, "is null or zero")
	}
	if e.Sequence < 1 && l.hasNumbers() {
		problem(fieldSequence, fmt.Sprintf("is %d", e.Sequence))
	}
	if e.AggregateType == "" {
		problem(fieldAggregateType, "is null or empty")
	}
	if e.Type == "" {
		problem(fieldType, "is null or empty")
	}
	if refusedHeader != "" {
		problem(fieldHeaders, refusedHeader)
	}
	var refused InvalidEventError
	for _, text := range []struct {
		field field
		value string
	}{{fieldAggregateType, e.AggregateType}, {fieldType, e.Type}, {fieldContentType, e.ContentType}, {fieldID, e.ID.text}, {fieldAggregateID, e.AggregateID.text}, {fieldHeaders, e.Headers[HeaderPartitionKey]}, {fieldHeaders, e.Headers[HeaderTopic]}} {
		if text.value == "" {
			continue
		}
		if refused.name("", text.value, ""); refused.Fields != nil {
			problem(text.field, refused.Fields[0].Problem)
			break
		}
	}
	if canonical, ok := l.findMisspelling(&e.AggregateID); ok {
		problem(fieldAggregateID, "is another spelling of UUID "+canonical)
	}
	for _, c := range []struct {
		field field
		at    *time.Time
	}{{fieldCreatedAt, &e.CreatedAt}, {fieldDeliverAt, &e.DeliverAt}} {
		if y := c.at.UTC().Year(); !c.at.IsZero() && (y < 1 || y > 9999) {
			problem(c.field, fmt.Sprintf("is in the year %d, outside 1 to 9999: the column may have microseconds instead of milliseconds", y))
			*c.at = time.Time{} // no JSON and no header can have it
		}
	}
	if r, ok := bad.(*rowError); ok { //nolint:errorlint // it is never wrapped
		r.Event = *e
	}
	return bad
}

// findInvalidHeader returns the problem of the first header by name of a row that Append would
// refuse, empty if there is none. Names that the relay sets itself are left out of the record.
func findInvalidHeader(e *Event) string {
	first, problem := "", ""
	for k, v := range e.Headers {
		if lower := strings.ToLower(k); !eventHeader(lower) || problem != "" && first < k {
			continue
		} else if lower != k && isReserved(k) {
			first, problem = k, fmt.Sprintf("has the name %q: write it in lower case", k)
			continue
		}
		var refused InvalidEventError
		if refused.checkHeader(k, v, len(e.Payload) > 0); refused.Fields != nil {
			first, problem = k, fmt.Sprintf("has %q, which %s", k, refused.Fields[0].Problem)
		}
	}
	return problem
}

// contentTypeHeader returns the header content-type in any case, in which the relay leaves it out
// of the record; of several the one in lower case, else the first by name.
func contentTypeHeader(headers map[string]string) string {
	if v, ok := headers[HeaderContentType]; ok {
		return v
	}
	for _, k := range slices.Sorted(maps.Keys(headers)) {
		if strings.EqualFold(k, HeaderContentType) {
			return headers[k]
		}
	}
	return ""
}

// read sets the field from the row. Null leaves it zero.
func (c *column) read(r row, f field, e *Event) (err error) {
	switch f {
	case fieldAggregateID:
		e.AggregateID, err = c.id(r)
	case fieldID:
		e.ID, err = c.id(r)
	case fieldSequence:
		e.Sequence, _, err = c.integer(r)
	case fieldAggregateType:
		e.AggregateType, _, err = value[string](r, c.name)
	case fieldType:
		e.Type, _, err = value[string](r, c.name)
	case fieldContentType:
		e.ContentType, _, err = value[string](r, c.name)
	case fieldHeaders:
		e.Headers, err = c.headers(r)
	case fieldDeliverAt:
		e.DeliverAt, err = c.time(r)
	case fieldCreatedAt:
		e.CreatedAt, err = c.time(r)
	case fieldPayload:
		e.Payload, err = c.bytes(r)
	}
	return err
}

func (c *column) id(r row) (id ID, err error) {
	if c.parts != nil {
		parts := make([]string, len(c.parts))
		for i := range c.parts {
			if parts[i], _, err = c.parts[i].text(r); err != nil {
				return ID{}, err
			}
		}
		return c.join(parts)
	}
	switch c.typ {
	case typeUUID, typeTimeUUID:
		id.uuid, _, err = value[gocql.UUID](r, c.name)
		return id, err
	case typeText:
		text, _, err := value[string](r, c.name)
		return IDFromText(text), err
	}
	n, ok, err := c.integer(r)
	if !ok {
		return ID{}, err
	}
	return IDFromInt(n), err
}

func (c *column) integer(r row) (n int64, ok bool, err error) {
	if c.typ == typeInt {
		v, ok, err := value[int](r, c.name)
		return int64(v), ok, err
	}
	return value[int64](r, c.name)
}

func (c *column) time(r row) (time.Time, error) {
	if c.typ == typeTimestamp {
		t, _, err := value[time.Time](r, c.name)
		return t, err
	}
	if c.typ == typeTimeUUID {
		u, ok, err := value[gocql.UUID](r, c.name)
		if !ok {
			return time.Time{}, err
		}
		return u.Time().UTC().Truncate(time.Millisecond), nil
	}
	text, ok, err := c.text(r)
	if !ok {
		return time.Time{}, err
	}
	t, problem := parseTime(c.typ, text)
	return t, c.problem(problem)
}

func (c *column) headers(r row) (map[string]string, error) {
	if c.typ == typeTextMap {
		headers, _, err := value[map[string]string](r, c.name)
		return headers, err
	}
	text, ok, err := value[string](r, c.name)
	if !ok {
		return nil, err
	}
	headers, problem := parseHeaders(text)
	return headers, c.problem(problem)
}

// problem returns the error of a value of the column, nil for none.
func (c *column) problem(text string) error {
	if text == "" {
		return nil
	}
	return &rowError{Column: c.name, Problem: text}
}

func (c *column) bytes(r row) ([]byte, error) {
	if c.typ == typeBlob {
		b, _, err := value[[]byte](r, c.name)
		return b, err
	}
	s, ok, err := value[string](r, c.name)
	if !ok {
		return nil, err
	}
	return []byte(s), nil
}

// value is a column's value; ok is false for null, which is zero, and with an error.
func value[T any](r row, column string) (v T, ok bool, err error) {
	x, found := r.GetValue(column)
	if !found {
		return v, false, &rowError{Column: column, Problem: "is missing: the table is not as it was mapped", Mismatch: true}
	}
	switch x := x.(type) {
	case nil:
		return v, false, nil
	case *T:
		if x == nil {
			return v, false, nil
		}
		return *x, true, nil
	case T:
		return x, true, nil
	}
	return v, false, &rowError{Column: column, Problem: fmt.Sprintf("has type %T, want %T", x, v), Mismatch: true}
}
