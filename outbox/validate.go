package outbox

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

// Bounds that Validate enforces. They keep a record below a broker's default
// message.max.bytes of 1,048,588 and a logged batch below ScyllaDB's
// batch_size_fail_threshold of 1024 kB.
const (
	// MaxEventBytes bounds payload and headers together.
	MaxEventBytes = 1_000_000
	// MaxNameBytes bounds AggregateType, Type, ContentType and a header's key.
	MaxNameBytes = 249
)

// MaxDelay bounds DeliverAt: how long after the write of its row an event may be due. The relay
// keeps such an event in memory, and its position before it. POST /v1/messages with deliver_at
// keeps one in the database, for up to a year.
const MaxDelay = 10 * time.Second

// maxWriteDelay is the limit for a writer, by its own clock: the database may date the row by
// one that is up to 5 s behind.
const maxWriteDelay = MaxDelay / 2

// FieldError is one problem of an event.
type FieldError struct {
	// Field is the name in Event, such as "Sequence" or `Headers["ce_id"]`.
	Field string
	// Problem describes the problem, Fix the solution.
	Problem, Fix string
}

// InvalidEventError lists every problem of an event.
type InvalidEventError struct {
	Fields []FieldError
}

// Error names every field with its problem and its fix.
func (e *InvalidEventError) Error() string {
	var b strings.Builder
	b.WriteString("outbox: invalid event: ")
	for i, f := range e.Fields {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s %s: %s", f.Field, f.Problem, f.Fix)
	}
	return b.String()
}

func (e *InvalidEventError) add(field, problem, fix string) {
	e.Fields = append(e.Fields, FieldError{Field: field, Problem: problem, Fix: fix})
}

// Validate returns nil if e can be stored in outbox_messages, or a table like
// it, and published; otherwise an *InvalidEventError with every invalid field.
// Table.Validate is for any table.
func (e *Event) Validate() error { return DefaultTable.Validate(e) }

// Validate returns nil if e may be stored in t and published, otherwise an
// *InvalidEventError that names every bad field. A Table that cannot write has an error of its own.
func (t Table) Validate(e *Event) error {
	if err := t.usable(); err != nil {
		return err
	}
	return t.invalid(e, t.validate)
}

// invalid returns what check adds as an *InvalidEventError, nil for nothing.
func (t Table) invalid(e *Event, check func(*Event, *InvalidEventError)) error {
	var bad InvalidEventError
	if e == nil {
		bad.add("Event", "is nil", "pass a pointer to the event")
	} else {
		check(e, &bad)
	}
	if bad.Fields == nil {
		return nil
	}
	return &bad
}

// checkDelay is rows.CheckDelay.
func (t Table) checkDelay(e *Event, written time.Time) error {
	if e == nil {
		return t.invalid(e, nil)
	}
	if delay := e.DeliverAt.Sub(written); !e.DeliverAt.IsZero() && delay > MaxDelay {
		return &rowError{
			Column:  cmp.Or(t.columnLayout().columns[fieldDeliverAt].name, fieldNames[fieldDeliverAt]),
			Problem: fmt.Sprintf("is %s after the write of the row, more than %s: %s", delay.Round(time.Millisecond), MaxDelay, fixDelay),
			Event:   *e,
		}
	}
	return nil
}

// fixDelay is the fix for an event that is due too late.
const fixDelay = "send it with POST /v1/messages and deliver_at"

// delay checks DeliverAt of an event that is about to be written.
func (e *InvalidEventError) delay(deliver, now time.Time) {
	if delay := deliver.Sub(now); !deliver.IsZero() && delay > maxWriteDelay {
		e.add("DeliverAt", fmt.Sprintf("is %s ahead, more than %s", delay.Round(time.Millisecond), maxWriteDelay), fixDelay)
	}
}

// validate adds the invalid fields of e to bad.
func (t Table) validate(e *Event, bad *InvalidEventError) {
	t.validatePlace(e, bad)
	bad.name("AggregateType", e.AggregateType, `set it to the type of the aggregate, such as "order"`)
	bad.name("Type", e.Type, `set it to the type of the event, such as "OrderCreated"`)
	if e.ContentType != "" {
		bad.name("ContentType", e.ContentType, "use a media type such as application/json, or leave it empty")
	}
	bad.time("CreatedAt", e.CreatedAt)
	if !e.DeliverAt.IsZero() {
		bad.time("DeliverAt", e.DeliverAt)
	}
	for k, v := range e.Headers {
		bad.checkHeader(k, v, len(e.Payload) > 0)
	}
	t.columnLayout().validateKept(e, bad)
	if c := &t.columnLayout().columns[fieldPayload]; c.typ == typeText && !utf8.Valid(e.Payload) {
		bad.add("Payload", "is not valid UTF-8", "encode it as text, or use a table whose column "+c.name+" is a blob: it is a text")
	}
	if size := e.Bytes(); size > MaxEventBytes {
		bad.add("Payload", fmt.Sprintf("has %d bytes with its headers; the maximum is %d", size, MaxEventBytes),
			"move the payload to a store with MovePayload")
	}
}

// validateKept checks that the table keeps each field that is set: an event without its delivery
// time, or without the reference of its payload, is another one.
func (l *layout) validateKept(e *Event, bad *InvalidEventError) {
	none := func(f field) bool { return l.columns[f].name == "" }
	const why = ": the table has no column for it"
	for _, constant := range []struct {
		field          field
		name, is, want string
	}{
		{fieldAggregateType, "AggregateType", e.AggregateType, l.aggregateType},
		{fieldType, "Type", e.Type, l.eventType},
		{fieldContentType, "ContentType", cmp.Or(e.ContentType, DefaultContentType), DefaultContentType},
	} {
		if none(constant.field) && constant.is != "" && constant.is != constant.want {
			bad.add(constant.name, "is "+strconv.Quote(constant.is), "set it to "+strconv.Quote(constant.want)+why)
		}
	}
	if none(fieldDeliverAt) && !e.DeliverAt.IsZero() {
		bad.add("DeliverAt", "is set", "leave it zero"+why)
	}
	if none(fieldHeaders) && len(e.Headers) > 0 {
		bad.add("Headers", "are set", "remove them: the table has no column for headers")
	}
	for i := range l.headers {
		h := &l.headers[i]
		if _, ok := e.Headers[h.key]; ok && h.field == fieldCount {
			bad.add(fmt.Sprintf("Headers[%q]", h.key), "is that of column "+h.column.name, "remove it, and write the column by a statement of your own")
		}
	}
}

// checkHeader checks a header of an event, which may have a payload too.
func (e *InvalidEventError) checkHeader(k, v string, withPayload bool) {
	field := fmt.Sprintf("Headers[%q]", k)
	e.name(field, k, "use a short printable key")
	if k == HeaderPartitionKey {
		e.name(field, v, "use a short printable record key, or omit it to use the aggregate's id")
	} else if k == HeaderDataRef {
		if _, err := payload.Parse(v); err != nil {
			e.add(field, "is no reference of a stored payload", "leave it to MovePayload")
		} else if withPayload {
			e.add(field, "is set beside a payload", "remove it or the payload")
		}
	} else if k == HeaderTopic {
		e.add(field, "is the topic of the row, which headers cannot name", "remove it; the topic is that of the relay's settings, or of the column in record_headers")
	} else if !eventHeader(k) {
		e.add(field, "is a name that the relay sets", "choose a key that is not content-type and does not begin with ce_")
	}
	if !utf8.ValidString(v) {
		e.add(field, "is not valid UTF-8", "encode binary values as text")
	}
}

// validatePlace checks what tells an event from others: its id, its aggregate and its number there.
func (t Table) validatePlace(e *Event, bad *InvalidEventError) {
	bad.id("ID", &e.ID, &t.columnLayout().columns[fieldID], "set it to outbox.NewID(), or to outbox.NameID(…) where a retry must write the same event")
	t.validateAggregate(e, bad)
	t.validateSequence(e, bad)
}

func (t Table) validateSequence(e *Event, bad *InvalidEventError) {
	if e.Sequence < 1 && t.Numbered() {
		bad.add("Sequence", fmt.Sprintf("is %d", e.Sequence), "number the events of one aggregate 1, 2, 3 … without gaps")
	} else if e.Sequence != 0 && !t.Numbered() {
		bad.add("Sequence", fmt.Sprintf("is %d", e.Sequence), "leave it 0: the table has no column for it")
	} else if c := &t.columnLayout().columns[fieldSequence]; c.typ == typeInt && e.Sequence > math.MaxInt32 {
		bad.add("Sequence", fmt.Sprintf("is %d", e.Sequence), "use a table whose column "+c.name+" is a bigint: it is an int")
	}
}

// validateAggregate checks the aggregate of an event.
func (t Table) validateAggregate(e *Event, bad *InvalidEventError) {
	bad.id("AggregateID", &e.AggregateID, &t.columnLayout().columns[fieldAggregateID], "set it to the id of the row the event is about, by outbox.IDFromUUID, IDFromText or IDFromInt")
	if canonical, ok := t.columnLayout().findMisspelling(&e.AggregateID); ok {
		bad.add("AggregateID", "is "+strconv.Quote(e.AggregateID.text)+", another spelling of UUID "+canonical, "use outbox.IDFromUUID: a UUID has one spelling")
	}
}

// id checks that an id is set and fits into its column.
func (e *InvalidEventError) id(field string, id *ID, c *column, fix string) {
	is := func() string { return "is " + strconv.Quote(string(clip([]byte(id.String())))) }
	of := func() string { return "column " + c.name + " is a " + string(c.typ) }
	switch {
	case id.IsZero():
		e.add(field, "is zero", fix)
	case c.parts != nil:
		if _, ok := c.split(*id); !ok {
			e.add(field, is()+", which does not fit the columns "+c.name, "join their values by outbox.AggregateSeparator")
		} else {
			e.name(field, id.String(), "use a short printable text")
		}
	case !id.fits(c.typ) && (c.typ == typeUUID || c.typ == typeTimeUUID):
		e.add(field, is()+", which is no UUID", "use outbox.IDFromUUID: "+of())
	case !id.fits(c.typ):
		e.add(field, is(), "use outbox.IDFromInt with a number in range: "+of())
	case c.typ == typeTimeUUID && id.uuid.Version() != 1:
		e.add(field, fmt.Sprintf("is a UUID of version %d", id.uuid.Version()), "use a time-based one, such as gocql.TimeUUID(): "+of())
	case id.text != "":
		e.name(field, id.text, "use a short printable text")
	}
}

func bits(t columnType) int {
	if t == typeInt {
		return 32
	}
	return 64
}

// Bytes returns the size of payload and headers, which MaxEventBytes bounds.
func (e *Event) Bytes() int {
	if e == nil {
		return 0
	}
	size := len(e.Payload)
	for k, v := range e.Headers {
		size += len(k) + len(v)
	}
	return size
}

// time checks a time that is used in a header value.
func (e *InvalidEventError) time(field string, t time.Time) {
	if t.IsZero() {
		e.add(field, "is zero", "set it to time.Now().UTC(), once, so that a retry writes the same row")
	} else if y := t.UTC().Year(); y < 1 || y > 9999 {
		e.add(field, fmt.Sprintf("is in the year %d", y), "use a year from 1 to 9999, as in RFC 3339")
	}
}

// name checks a short text that is used in a header value or topic name.
func (e *InvalidEventError) name(field, v, fix string) {
	switch {
	case v == "":
		e.add(field, "is empty", fix)
	case len(v) > MaxNameBytes:
		e.add(field, fmt.Sprintf("is %d bytes long, more than %d", len(v), MaxNameBytes), fix)
	case !printable(v):
		e.add(field, "holds control characters or is not valid UTF-8", fix)
	}
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
