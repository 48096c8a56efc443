package outbox

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

// recordHeader is a record header with the value of a column.
type recordHeader struct {
	key string
	// field is the field that the column has too; fieldCount if the column belongs to
	// none and is read for the header alone.
	field  field
	column column
}

// headerTypes are the types of a column that a record header may have. Each has one
// text form.
var headerTypes = slices.Concat(idTypes, []columnType{typeBoolean, typeTinyint, typeSmallint, typeDecimal, typeTimestamp})

// headerFields are the fields whose value is that of their column as text.
var headerFields = []field{fieldID, fieldAggregateID, fieldSequence, fieldAggregateType, fieldType, fieldContentType}

// idHeaders is rows.IDHeaders.
func (m Mapping) idHeaders() []string {
	id := cmp.Or(m.Columns[fieldNames[fieldID]], presets[cmp.Or(m.Preset, PresetDefault)][fieldID])
	var keys []string
	for key, column := range m.RecordHeaders {
		if column == id {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// validateRecordHeaders returns a *MappingError for a header that no table can have.
func (m Mapping) validateRecordHeaders() error {
	for _, key := range slices.Sorted(maps.Keys(m.RecordHeaders)) {
		problem := func(text, fix string) error {
			return &MappingError{"", "", fmt.Sprintf("has record header %q, which %s", key, text), fix}
		}
		var bad InvalidEventError
		switch bad.name("", key, "use a short printable key"); {
		case bad.Fields != nil:
			return problem(bad.Fields[0].Problem, bad.Fields[0].Fix)
		case !eventHeader(key):
			return problem("the relay sets", "choose a key that is not content-type and does not begin with ce_")
		case m.RecordHeaders[key] == "":
			return problem("has no column", "name a column of the table, or remove the header")
		}
	}
	return nil
}

// recordHeaders finds the column of every record header.
func (l *layout) recordHeaders(m Mapping, columns []Column) (bad []*MappingError) {
	for _, key := range slices.Sorted(maps.Keys(m.RecordHeaders)) {
		name := m.RecordHeaders[key]
		i := slices.IndexFunc(columns, func(c Column) bool { return c.Name == name })
		if i < 0 {
			names := make([]string, len(columns))
			for i, c := range columns {
				names[i] = c.Name
			}
			bad = append(bad, &MappingError{"", name, fmt.Sprintf("of record header %q is missing", key), "name one of " + strings.Join(names, ", ")})
			continue
		}
		c := columns[i]
		typ, ok := parseType(c.Type)
		switch {
		case !ok || !slices.Contains(headerTypes, typ):
			bad = append(bad, &MappingError{
				"", name, fmt.Sprintf("has type %s, which record header %q cannot have", c.Type, key),
				"name a column of type " + list(headerTypes),
			})
			continue
		case c.Kind == KindStatic:
			bad = append(bad, &MappingError{"", name, "is static", fmt.Sprintf("name a column for record header %q that each row has", key)})
			continue
		}
		h := recordHeader{key: key, field: fieldCount, column: column{name: name, typ: typ, key: c.Kind != KindRegular}}
		for _, f := range headerFields {
			if l.columns[f].name == name {
				h.field = f
				break
			}
		}
		l.headers = append(l.headers, h)
	}
	return bad
}

// list returns types as a text.
func list(types []columnType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// addHeaders adds the record headers to e.Headers and replaces equal keys; see complete.
// Null has no header.
func (l *layout) addHeaders(e *Event, text func(*recordHeader) (value string, ok bool, err error)) (bad error) {
	if len(l.headers) == 0 {
		return nil
	}
	all := make(map[string]string, len(e.Headers)+len(l.headers)) // the row's map is not changed
	maps.Copy(all, e.Headers)
	for i := range l.headers {
		h := &l.headers[i]
		delete(all, h.key)
		v, ok := "", true
		switch h.field {
		case fieldID:
			continue // see Mapping.idHeaders
		case fieldAggregateID:
			v = e.AggregateID.String()
		case fieldSequence:
			v = strconv.FormatInt(e.Sequence, 10)
		case fieldAggregateType:
			v = e.AggregateType
		case fieldType:
			v = e.Type
		case fieldContentType:
			v = e.ContentType
		default:
			var err error
			if v, ok, err = text(h); err != nil && bad == nil {
				bad = err
			}
		}
		if ok {
			all[h.key] = v
		}
	}
	e.Headers = all
	return bad
}

// text reads the column as text; ok is false for null.
func (c *column) text(r row) (text string, ok bool, err error) {
	switch c.typ {
	case typeUUID, typeTimeUUID:
		u, ok, err := value[gocql.UUID](r, c.name)
		return u.String(), ok, err
	case typeText:
		return value[string](r, c.name)
	case typeBoolean:
		b, ok, err := value[bool](r, c.name)
		return strconv.FormatBool(b), ok, err
	case typeTinyint:
		n, ok, err := value[int8](r, c.name)
		return strconv.Itoa(int(n)), ok, err
	case typeSmallint:
		n, ok, err := value[int16](r, c.name)
		return strconv.Itoa(int(n)), ok, err
	case typeDecimal:
		d, ok, err := value[*inf.Dec](r, c.name)
		if d == nil {
			return "", false, err
		}
		return d.String(), ok, err
	case typeTimestamp:
		t, ok, err := value[time.Time](r, c.name)
		return t.UTC().Format(timeFormat), ok, err
	default:
		n, ok, err := c.integer(r)
		return strconv.FormatInt(n, 10), ok, err
	}
}

// textScan reads a column as text.
type textScan struct {
	typ  columnType
	text string
	ok   bool // not null
}

// UnmarshalCQL reads the value.
func (d *textScan) UnmarshalCQL(info gocql.TypeInfo, data []byte) error {
	d.text, d.ok = "", data != nil
	switch {
	case !d.ok || d.typ == typeText:
		d.text = string(data)
		return nil
	case len(data) == 0: // an empty value of a type with a length is null
		d.ok = false
		return nil
	case d.typ == typeUUID || d.typ == typeTimeUUID:
		u, err := gocql.UUIDFromBytes(data)
		d.text = u.String()
		return err
	case d.typ == typeBoolean:
		d.text = strconv.FormatBool(data[0] != 0)
		return nil
	case d.typ == typeDecimal:
		var dec inf.Dec
		err := gocql.Unmarshal(info, data, &dec)
		d.text = dec.String()
		return err
	case d.typ == typeTimestamp:
		n, err := integer(data)
		d.text = time.UnixMilli(n).UTC().Format(timeFormat)
		return err
	}
	n, err := integer(data)
	d.text = strconv.FormatInt(n, 10)
	return err
}
