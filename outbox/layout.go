package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/keys"
)

// layout maps the fields of an event to the columns of a table. It is
// immutable.
type layout struct {
	columns                  [fieldCount]column
	aggregateType, eventType string // where there is no column, or null in it
	headers                  []recordHeader

	fields  []field // fields with a column, in their order
	list    string  // all columns that are read, as a statement names them
	written []field // fields that an INSERT sets: each column once
	inserts []insertColumn
	marker  field  // set by every write that adds an event
	mark    string // column whose write time is that of the event
	// partition are the columns of the partition key.
	partition []string
	// unmapped is a column of the key that no field has; rows cannot be written then.
	unmapped string
	// behind is a column of the key behind the sequence number: rows of one number are apart
	// then, and no condition on a row guards the number.
	behind string
}

// column is the column of a field; without a name there is none.
type column struct {
	name string
	typ  columnType
	key  bool // part of the primary key
	// descending is true for a clustering column with the highest value first.
	descending bool
	// parts are the columns of an aggregate that has several.
	parts []column
}

// each returns the columns of the table that the column consists of.
func (c column) each() []column {
	if c.parts != nil {
		return c.parts
	}
	return []column{c}
}

// has reports whether the column of the table belongs to c.
func (c column) has(name string) bool {
	return slices.ContainsFunc(c.each(), func(p column) bool { return p.name == name })
}

// quoteNames returns the columns in CQL.
func (c column) quoteNames() string {
	names := make([]string, 0, 1)
	for _, p := range c.each() {
		names = append(names, quote(p.name))
	}
	return strings.Join(names, ", ")
}

// insertColumn is a column that an INSERT sets.
type insertColumn struct {
	name  string // as CQL writes it
	field field
	typ   columnType
}

// defaultLayout is that of outbox_messages.
var defaultLayout = func() *layout {
	l := new(layout)
	for f, name := range fieldNames {
		l.columns[f] = column{name: name, typ: fieldTypes[f][0], key: field(f) == fieldAggregateID || field(f) == fieldSequence}
	}
	l.columns[fieldAggregateID].typ = typeText
	l.partition = []string{fieldNames[fieldAggregateID]}
	l.prepare()
	return l
}()

// prepare computes the derived fields from the columns.
func (l *layout) prepare() {
	var names []string
	for f, c := range l.columns {
		if c.name == "" {
			continue
		}
		name := c.quoteNames()
		if l.fields = append(l.fields, field(f)); !slices.Contains(names, name) {
			l.written = append(l.written, field(f))
			for _, p := range c.each() {
				l.inserts = append(l.inserts, insertColumn{quote(p.name), field(f), p.typ})
			}
		}
		names = append(names, name)
	}
	for _, h := range l.headers {
		if h.field == fieldCount {
			names = append(names, quote(h.column.name))
		}
	}
	l.list = strings.Join(names, ", ")
	// An update of an unmapped column must not be taken for an event. Of the columns
	// that every event has, the key columns are in every log row.
	l.marker = fieldID
	for _, f := range []field{fieldID, fieldType, fieldPayload, fieldAggregateType} {
		if c := l.columns[f]; c.name != "" && !c.key {
			l.marker = f
			break
		}
	}
	l.mark = l.columns[l.marker].name
}

// quote returns a name in CQL. The names of outbox_messages need no quotes.
func quote(name string) string {
	if slices.Contains(fieldNames[:], name) {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// hasNumbers reports whether events have a sequence number.
func (l *layout) hasNumbers() bool { return l.columns[fieldSequence].name != "" }

// findMisspelling is the function misspelled for an aggregate of a table with the column aggregate_id
// of outbox_messages. Tables with columns of their own have the ids of their owners.
func (l *layout) findMisspelling(aggregate *ID) (canonical string, ok bool) {
	c := &l.columns[fieldAggregateID]
	if c.typ != typeText || c.name != fieldNames[fieldAggregateID] {
		return "", false
	}
	return keys.Misspelled(aggregate.text)
}

// writable returns the error of statements that write a row.
func (l *layout) writable(table string) error {
	if l.unmapped == "" {
		return nil
	}
	return &MappingError{table, l.unmapped, "is part of the primary key, and no field of an event is mapped to it", "write the row with a statement of your own"}
}

// checkConditional returns the error of conditional statements, which promise that a number has one event.
func (l *layout) checkConditional(table string) error {
	if l.behind == "" {
		return nil
	}
	return &MappingError{
		table, l.behind, "is behind the sequence number in the primary key, so a condition on the row of one event does not see another event of that number",
		"use a table whose primary key ends with the sequence number, or write with Append from one writer per aggregate",
	}
}

// appendable returns the error of an Appender.
func (l *layout) appendable(table string) error {
	return cmp.Or(l.writable(table), l.checkConditional(table))
}

// fits compares the layout with the columns that its table has. An Appender writes and reads each
// of them, so that a difference would fail, or be accepted under another key, with each event.
func (l *layout) fits(table string, columns []Column) error {
	need := make([]column, 0, len(l.fields)+len(l.headers))
	for _, f := range l.fields {
		need = append(need, l.columns[f].each()...)
	}
	for _, h := range l.headers {
		if h.field == fieldCount {
			need = append(need, h.column)
		}
	}
	const describe = "describe the table as it is, by Mapping.Table with the columns of ReadColumns"
	var bad []error
	for _, c := range need {
		i := slices.IndexFunc(columns, func(has Column) bool { return has.Name == c.name })
		if i < 0 {
			fix := fmt.Sprintf("ALTER TABLE %s ADD %s %s, or %s", table, quote(c.name), c.typ, describe)
			if c.key { // nothing can be added to a key
				fix = describe
			}
			bad = append(bad, &MappingError{table, c.name, "is missing", fix})
			continue
		}
		switch typ, _ := parseType(columns[i].Type); {
		case typ != c.typ:
			bad = append(bad, &MappingError{table, c.name, fmt.Sprintf("has type %s, and is described with %s", columns[i].Type, c.typ), describe})
		case columns[i].Kind == KindStatic:
			bad = append(bad, &MappingError{table, c.name, "is static", "use a column that each row has, or " + describe})
		}
	}
	if len(bad) > 0 {
		return errors.Join(bad...)
	}
	has := &layout{columns: l.columns}
	if err := has.key(columns, false); err != nil {
		err.Table = table
		return err
	}
	return has.appendable(table)
}

// key checks that the primary key keeps the events of an aggregate together, in
// the order of their sequence numbers, if any.
func (l *layout) key(columns []Column, unordered bool) *MappingError {
	var partition, clustering []string
	ordered := slices.Clone(columns)
	slices.SortStableFunc(ordered, func(a, b Column) int { return cmp.Compare(a.Position, b.Position) })
	for _, c := range ordered {
		switch c.Kind {
		case KindPartitionKey:
			partition = append(partition, c.Name)
		case KindClustering:
			clustering = append(clustering, c.Name)
		default:
			continue
		}
		if !slices.ContainsFunc(l.columns[:], func(m column) bool { return m.has(c.Name) }) {
			l.unmapped = cmp.Or(l.unmapped, c.Name)
		}
	}
	l.partition = partition
	aggregate, seq := l.columns[fieldAggregateID].name, l.columns[fieldSequence].name
	if seq != "" && (!l.byAggregate() || len(clustering) == 0 || clustering[0] != seq) {
		return &MappingError{
			"", seq, fmt.Sprintf("numbers the events, but the primary key is ((%s), %s)", strings.Join(partition, ", "), strings.Join(clustering, ", ")),
			fmt.Sprintf("use a primary key that begins with ((%s), %s), for lookups of missing numbers; or map seq to \"-\" for the order of the writes", aggregate, seq) + l.together(partition),
		}
	}
	if seq != "" && len(clustering) > 1 {
		l.behind = clustering[1]
	}
	if unordered {
		return nil
	}
	apart := func(name string) bool {
		return !l.columns[fieldAggregateID].has(name) && name != l.columns[fieldAggregateType].name
	}
	missing := func(c column) bool { return !slices.Contains(partition, c.name) }
	if i := slices.IndexFunc(partition, apart); i >= 0 || slices.ContainsFunc(l.columns[fieldAggregateID].each(), missing) {
		return &MappingError{
			"", partition[max(i, 0)], fmt.Sprintf("is in the partition key (%s), so one aggregate's events are in several CDC streams without an order among them", strings.Join(partition, ", ")),
			fmt.Sprintf("use a table with PRIMARY KEY (%s, …), or set the table to unordered", aggregate) + l.together(partition),
		}
	}
	return nil
}

// together is the fix of a partition key with columns beside that of the aggregate: they may
// belong to its id.
func (l *layout) together(partition []string) string {
	if len(partition) < 2 || !slices.Contains(partition, l.columns[fieldAggregateID].name) {
		return ""
	}
	return fmt.Sprintf("; or, if these columns together are the aggregate, map aggregate_id to %q", strings.Join(partition, ", "))
}

// byAggregate reports whether the partition key consists of the columns of the aggregate.
func (l *layout) byAggregate() bool {
	aggregate := &l.columns[fieldAggregateID]
	return len(aggregate.each()) == len(l.partition) && !slices.ContainsFunc(l.partition, func(name string) bool { return !aggregate.has(name) })
}
