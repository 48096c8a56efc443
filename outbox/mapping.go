package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The presets of a Mapping.
const (
	// PresetDefault has the columns of outbox_messages.
	PresetDefault = "default"
	// PresetDebezium has the columns that Debezium's outbox event router reads:
	// id, aggregatetype, aggregateid, type, payload.
	PresetDebezium = "debezium"
)

// AggregateSeparator is between the parts of the id of an aggregate with several columns.
const AggregateSeparator = ":"

// NoColumn marks a field in Mapping.columns that has no column.
const NoColumn = "-"

// Mapping maps the fields of events to the columns of an existing outbox table.
// The zero value is that of outbox_messages. Other columns are ignored.
type Mapping struct {
	// Preset provides the column names that Columns does not contain:
	// PresetDefault or PresetDebezium. Empty means PresetDefault.
	Preset string
	// Columns contains column names of the table. The keys are the column names of
	// outbox_messages: aggregate_id, seq, event_id, aggregate_type, event_type,
	// payload, content_type, headers, created_at, deliver_at. The value NoColumn
	// means that there is no such column.
	//
	// aggregate_id may name several columns, as in "tenant, order_id", if the id of an
	// aggregate is unique within others alone. The id of the aggregate is then their values as
	// text, joined by AggregateSeparator, which only the last of them may contain.
	//
	// headers of type text are a JSON object. created_at and deliver_at of type bigint are
	// seconds, milliseconds, microseconds or nanoseconds since 1970, by their size; of type
	// text they are RFC 3339, in UTC if they have no offset.
	//
	// event_id, aggregate_id and payload are required; aggregate_type and
	// event_type too, unless AggregateType and Type are set. Without seq, an
	// aggregate's events are in the order of their writes.
	Columns map[string]string
	// AggregateType and Type apply to rows whose column is null or missing.
	AggregateType, Type string
	// Unordered allows the events of one aggregate to be in several partitions of
	// the table. They are then in several CDC streams, without a guaranteed order.
	Unordered bool
	// RecordHeaders are record headers besides the headers of AppendHeaders, each with
	// the value of a column as text: keys of headers, and column names of the table. They
	// are the headers that Debezium's outbox event router makes of its id and of
	// table.fields.additional.placement. A column may belong to a field of the event or to
	// none; null has no header. A header of the row with the same key is replaced.
	//
	// HeaderPartitionKey makes the column the key of the record, HeaderTopic its topic, and
	// HeaderDataSchema the schema of the payload.
	RecordHeaders map[string]string
}

// field is a part of an Event that has a column, in the order of Columns.
type field uint8

const (
	fieldAggregateID field = iota
	fieldSequence
	fieldID
	fieldAggregateType
	fieldType
	fieldPayload
	fieldContentType
	fieldHeaders
	fieldCreatedAt
	fieldDeliverAt
	fieldCount
)

// fieldNames are the fields as Mapping and outbox_messages name them.
var fieldNames = [fieldCount]string{
	"aggregate_id", "seq", "event_id", "aggregate_type", "event_type",
	"payload", "content_type", "headers", "created_at", "deliver_at",
}

// fieldTypes are the types that a field's column may have.
var fieldTypes = [fieldCount][]columnType{
	fieldAggregateID:   idTypes,
	fieldSequence:      {typeBigint, typeInt},
	fieldID:            idTypes,
	fieldAggregateType: {typeText},
	fieldType:          {typeText},
	fieldPayload:       {typeBlob, typeText},
	fieldContentType:   {typeText},
	fieldHeaders:       {typeTextMap, typeText},
	fieldCreatedAt:     {typeTimestamp, typeTimeUUID, typeBigint, typeText},
	fieldDeliverAt:     {typeTimestamp, typeBigint, typeText},
}

var idTypes = []columnType{typeUUID, typeTimeUUID, typeText, typeBigint, typeInt}

// presets contains the column names of each preset; empty for none.
var presets = map[string][fieldCount]string{
	PresetDefault: fieldNames,
	PresetDebezium: {
		fieldID: "id", fieldAggregateType: "aggregatetype", fieldAggregateID: "aggregateid",
		fieldType: "type", fieldPayload: "payload",
	},
}

// MappingError reports a problem of a Mapping or of its table.
type MappingError struct {
	// Table is the table with its keyspace.
	Table string
	// column is the column, or the key of Mapping.columns; empty for the whole table.
	Column string
	// Problem describes the problem, Fix the solution.
	Problem, Fix string
}

// Error names the table, the column, the problem and the fix.
func (e *MappingError) Error() string {
	of := "outbox table"
	if e.Table != "" { // a mapping has none
		of += " " + e.Table
	}
	switch {
	case e.Column != "" && e.Table != "":
		of += ": column " + e.Column
	case e.Column != "":
		of = "column " + e.Column
	}
	return of + " " + e.Problem + ": " + e.Fix
}

// Validate returns nil, or a *MappingError for a problem of m with any table.
func (m Mapping) Validate() error {
	if _, ok := presets[cmp.Or(m.Preset, PresetDefault)]; !ok {
		return &MappingError{"", "", fmt.Sprintf("has an unknown preset %q", m.Preset), "use " + PresetDefault + " or " + PresetDebezium}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Columns)) {
		if !slices.Contains(fieldNames[:], key) {
			return &MappingError{"", key, "is not a field of an event", "map one of " + strings.Join(fieldNames[:], ", ")}
		}
		if m.Columns[key] == "" {
			return &MappingError{"", key, "is mapped to an empty name", `name a column of the table, or write "-" if it has none`}
		}
	}
	if err := m.validateRecordHeaders(); err != nil {
		return err
	}
	var bad InvalidEventError
	if m.AggregateType != "" {
		bad.name("AggregateType", m.AggregateType, "use a short printable name")
	}
	if m.Type != "" {
		bad.name("Type", m.Type, "use a short printable name")
	}
	if bad.Fields != nil {
		f := bad.Fields[0]
		return &MappingError{"", f.Field, f.Problem, f.Fix}
	}
	return nil
}

// Table returns the table with the given columns, as returned by ReadColumns.
// Names are unquoted CQL names; an empty keyspace means that of the session.
//
// The error contains a *MappingError for each column that does not fit, with the fix.
func (m Mapping) Table(keyspace, name string, columns []Column) (Table, error) {
	t, err := NewTable(keyspace, name)
	if err != nil {
		return Table{}, err
	}
	l, err := m.layout(columns, t.String())
	if bad, ok := err.(*MappingError); ok { //nolint:errorlint // it is never wrapped
		bad.Table = t.String()
	}
	if err != nil {
		return Table{}, err
	}
	t.layout = l
	return t.prepare(), nil
}

// layout finds a column for every field of a table. The error contains each column that is
// missing or has a wrong type.
func (m Mapping) layout(columns []Column, table string) (*layout, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	l := &layout{aggregateType: m.AggregateType, eventType: m.Type}
	var bad []error
	for f := range fieldCount {
		explicit := m.Columns[fieldNames[f]]
		name := cmp.Or(explicit, presets[cmp.Or(m.Preset, PresetDefault)][f])
		if explicit == NoColumn {
			name = ""
		}
		i := slices.IndexFunc(columns, func(c Column) bool { return c.Name == name })
		switch {
		case f == fieldAggregateID && strings.Contains(name, ","):
			c, problems := compound(name, columns)
			for _, p := range problems {
				p.Table = table
				bad = append(bad, p)
			}
			l.columns[f] = c
		case name != "" && i >= 0:
			c, err := mapColumn(f, columns[i])
			if err != nil {
				err.Table = table
				bad = append(bad, err)
			}
			l.columns[f] = c
		case name != "" && (explicit != "" || f == fieldSequence), m.needs(f):
			bad = append(bad, &MappingError{table, cmp.Or(name, fieldNames[f]), "is missing", missingFix(f, columns)})
		}
	}
	if id := l.columns[fieldID].name; id != "" && id == l.columns[fieldSequence].name {
		bad = append(bad, &MappingError{
			table, id, "is mapped to event_id and to seq, so events of different aggregates have equal ids, and only the first of them would be published",
			"map event_id to a column whose values are unique in the table",
		})
	}
	if l.columns[fieldAggregateID].name != "" { // the key is compared with columns that exist
		if err := l.key(columns, m.Unordered); err != nil {
			err.Table = table
			bad = append(bad, err)
		}
	}
	for _, err := range l.recordHeaders(m, columns) {
		err.Table = table
		bad = append(bad, err)
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	l.prepare()
	return l, nil
}

// compound returns the column of an aggregate whose id has several columns.
func compound(list string, columns []Column) (column, []*MappingError) {
	out := column{typ: typeText, key: true}
	var names []string
	var bad []*MappingError
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(columns, func(c Column) bool { return c.Name == name })
		if i < 0 {
			bad = append(bad, &MappingError{"", name, "is missing", missingFix(fieldAggregateID, columns)})
			continue
		}
		c, err := mapColumn(fieldAggregateID, columns[i])
		switch {
		case err != nil:
			bad = append(bad, err)
		case columns[i].Kind != KindPartitionKey:
			bad = append(bad, &MappingError{"", name, "is a part of the aggregate and not of the partition key", "map aggregate_id to columns of the partition key"})
		}
		names, out.parts = append(names, name), append(out.parts, c)
	}
	if len(bad) > 0 {
		return column{}, bad
	}
	out.name = strings.Join(names, ", ")
	return out, nil
}

// needs reports whether the column of the field is required.
func (m Mapping) needs(f field) bool {
	switch f {
	case fieldID, fieldAggregateID, fieldPayload:
		return true
	case fieldAggregateType:
		return m.AggregateType == ""
	case fieldType:
		return m.Type == ""
	default:
		return false
	}
}

func missingFix(f field, columns []Column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	fix := fmt.Sprintf("map %s to one of %s", fieldNames[f], strings.Join(names, ", "))
	switch f {
	case fieldSequence:
		fix += `, or to "-" if the table has no numbers`
	case fieldAggregateType:
		fix += ", or set the aggregate type of all rows"
	case fieldType:
		fix += ", or set the event type of all rows"
	}
	return fix
}

// mapColumn checks that the column may hold the field.
func mapColumn(f field, c Column) (column, *MappingError) {
	t, ok := parseType(c.Type)
	if !ok || !slices.Contains(fieldTypes[f], t) {
		return column{}, &MappingError{
			"", c.Name, fmt.Sprintf("has type %s, which cannot hold %s", c.Type, fieldNames[f]),
			"map " + fieldNames[f] + " to a column of type " + list(fieldTypes[f]),
		}
	}
	if c.Kind == KindStatic {
		return column{}, &MappingError{"", c.Name, "is static", "map " + fieldNames[f] + " to a column that each row has"}
	}
	return column{name: c.Name, typ: t, key: c.Kind != KindRegular, descending: c.Descending}, nil
}
