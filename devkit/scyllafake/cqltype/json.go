package cqltype

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// JSONKind is the kind of a JSON value.
type JSONKind uint8

// Kinds of JSON values.
const (
	JSONNull JSONKind = iota
	JSONBool
	JSONNumber
	JSONString
	JSONArray
	JSONObject
)

// JSON is a parsed JSON value. Members of an object keep their order.
type JSON struct {
	Kind JSONKind
	Bool bool
	Text string // a string, or a number as it was written
	List []JSON // an array, or the values of an object
	Keys []string
}

// ParseJSON parses one JSON value. Errors are *cqlerr.Error.
func ParseJSON(text string) (JSON, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	j, err := readJSON(d, 0)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the value")
		}
	}
	if err != nil {
		return JSON{}, cqlerr.Invalidf("Could not decode JSON string: %v. (String was: %s)", err, text)
	}
	return j, nil
}

// maxJSONDepth limits the nesting, as in ScyllaDB.
const maxJSONDepth = 78

func readJSON(d *json.Decoder, depth int) (JSON, error) {
	if depth > maxJSONDepth {
		return JSON{}, errors.New("too deeply nested")
	}
	tok, err := d.Token()
	if err != nil {
		return JSON{}, err
	}
	switch v := tok.(type) {
	case bool:
		return JSON{Kind: JSONBool, Bool: v}, nil
	case json.Number:
		return JSON{Kind: JSONNumber, Text: string(v)}, nil
	case string:
		return JSON{Kind: JSONString, Text: v}, nil
	case json.Delim:
		j := JSON{Kind: JSONArray}
		if v == '{' {
			j.Kind = JSONObject
		}
		for d.More() {
			if j.Kind == JSONObject {
				key, err := d.Token()
				if err != nil {
					return JSON{}, err
				}
				j.Keys = append(j.Keys, key.(string))
			}
			e, err := readJSON(d, depth+1)
			if err != nil {
				return JSON{}, err
			}
			j.List = append(j.List, e)
		}
		_, err := d.Token()
		return j, err
	}
	return JSON{}, nil // null
}

// Member returns the first member of an object with the given name.
func (j JSON) Member(name string) (JSON, bool) {
	for i, k := range j.Keys {
		if k == name {
			return j.List[i], true
		}
	}
	return JSON{}, false
}

// String formats the value as JSON, for messages.
func (j JSON) String() string {
	switch j.Kind {
	case JSONBool:
		return strconv.FormatBool(j.Bool)
	case JSONNumber:
		return j.Text
	case JSONString:
		return string(AppendJSONString(nil, j.Text))
	case JSONArray, JSONObject:
		var parts []string
		for i, e := range j.List {
			s := e.String()
			if j.Kind == JSONObject {
				s = string(AppendJSONString(nil, j.Keys[i])) + ":" + s
			}
			parts = append(parts, s)
		}
		if j.Kind == JSONObject {
			return "{" + strings.Join(parts, ",") + "}"
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return "null"
}

// FromJSON converts a JSON value as INSERT JSON and fromJson() do. JSON null is null.
// Sets and maps are returned in their order. Errors are *cqlerr.Error.
func (t *Type) FromJSON(j JSON) ([]byte, error) {
	if j.Kind == JSONNull {
		return nil, nil
	}
	switch t.Kind {
	case TinyInt, SmallInt, Int, BigInt:
		if j.Kind == JSONString {
			return t.FromText(j.Text)
		}
		return t.intFromJSON(j)
	case Counter:
		if j.Kind != JSONNumber {
			return nil, marshalErrorf("Counters must be represented as JSON integer")
		}
		return t.intFromJSON(j)
	case ASCII, Varchar:
		if j.Kind != JSONString {
			return nil, marshalErrorf("%s must be represented as string in JSON, instead got '%s'", t, j)
		}
		return t.FromText(j.Text)
	case Blob:
		return blobFromJSON(j)
	case Boolean:
		return boolFromJSON(j)
	case Timestamp:
		switch j.Kind {
		case JSONNumber:
			return t.intFromJSON(j)
		case JSONString:
			return t.FromText(j.Text)
		}
		return nil, marshalErrorf("timestamp_type must be represented as string or integer")
	case TimeUUID, Date, Time, UUID, Inet, Duration:
		if j.Kind != JSONString {
			return nil, marshalErrorf("%s must be represented as string in JSON, instead got '%s'", jsonTypeNames[t.Kind], j)
		}
		return t.FromText(j.Text)
	case Float, Double:
		if j.Kind != JSONNumber && j.Kind != JSONString {
			return nil, marshalErrorf("JSON value must be represented as double or string")
		}
		return t.FromText(j.Text)
	case Varint, Decimal:
		if j.Kind != JSONNumber && j.Kind != JSONString {
			return nil, marshalErrorf("%s must be represented as numeric or string in JSON", j)
		}
		return t.FromText(j.Text)
	case List, Set, Map:
		return t.collectionFromJSON(j)
	case Tuple, UDT:
		return t.tupleFromJSON(j)
	}
	return nil, cqlerr.Unsupported("JSON of type " + t.String())
}

var jsonTypeNames = map[Kind]string{
	TimeUUID: "timeuuid_type", Date: "simple_date_type", Time: "time_type", UUID: "uuid_type",
	Inet: "inet_addr_type", Duration: "duration_type", List: "list_type", Set: "set_type",
}

func (t *Type) intFromJSON(j JSON) ([]byte, error) {
	if j.Kind != JSONNumber {
		return nil, marshalErrorf("Incorrect JSON value for int64 type: %s", j)
	}
	n, err := strconv.ParseInt(j.Text, 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(j.Text, 64)
		whole, frac := math.Modf(f)
		switch {
		case ferr != nil || whole < -1<<63 || whole >= 1<<63:
			return nil, marshalErrorf("Value %s out of range", j.Text)
		case frac != 0:
			return nil, marshalErrorf("Incorrect JSON floating-point value for int64 type: %s (it should not contain fractional part %s)",
				j, formatFloat(frac, 64))
		}
		n = int64(whole)
	}
	b, ok := t.EncodeInt(n)
	if !ok {
		return nil, marshalErrorf("Value %d out of range", n)
	}
	return b, nil
}

func blobFromJSON(j JSON) ([]byte, error) {
	if j.Kind != JSONString {
		return nil, marshalErrorf("bytes_type must be represented as string in JSON, instead got '%s'", j)
	}
	digits, ok := strings.CutPrefix(j.Text, "0x")
	if !ok {
		return nil, marshalErrorf("Blob JSON strings must start with 0x")
	}
	return FromHex(digits)
}

func boolFromJSON(j JSON) ([]byte, error) {
	switch {
	case j.Kind == JSONBool:
		return EncodeBool(j.Bool), nil
	case j.Kind == JSONString:
		switch strings.ToLower(strings.TrimSpace(j.Text)) {
		case "true":
			return EncodeBool(true), nil
		case "false":
			return EncodeBool(false), nil
		}
	}
	return nil, marshalErrorf("Invalid JSON object %s", j)
}

func (t *Type) collectionFromJSON(j JSON) ([]byte, error) {
	if t.Kind == Map {
		return t.mapFromJSON(j)
	}
	if j.Kind != JSONArray {
		return nil, marshalErrorf("%s must be represented as JSON Array", jsonTypeNames[t.Kind])
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(len(j.List)))
	for _, e := range j.List {
		v, err := t.Elem.FromJSON(e)
		if err != nil {
			return nil, err
		}
		if v == nil {
			return nil, ErrNullElement
		}
		out = AppendElement(out, v)
	}
	return Normalize(t, out), nil
}

func (t *Type) mapFromJSON(j JSON) ([]byte, error) {
	if j.Kind != JSONObject {
		return nil, marshalErrorf("map_type must be represented as JSON Object")
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(len(j.List)))
	for i, e := range j.List {
		// A key is a string even where the key type is not a text: it then contains the
		// JSON of the key. If it is not JSON, such as a bare uuid, it is the string
		// itself.
		key := JSON{Kind: JSONString, Text: j.Keys[i]}
		if t.Key.Kind != Varchar && t.Key.Kind != ASCII {
			if parsed, err := ParseJSON(j.Keys[i]); err == nil {
				key = parsed
			}
		}
		k, err := t.Key.FromJSON(key)
		if err != nil {
			return nil, err
		}
		v, err := t.Elem.FromJSON(e)
		if err != nil {
			return nil, err
		}
		if k == nil || v == nil {
			return nil, ErrNullElement
		}
		out = AppendElement(AppendElement(out, k), v)
	}
	return Normalize(t, out), nil
}

func (t *Type) tupleFromJSON(j JSON) ([]byte, error) {
	fields := make([][]byte, len(t.Fields))
	if t.Kind == UDT {
		if j.Kind != JSONObject {
			return nil, marshalErrorf("user_type must be represented as JSON Object")
		}
		for _, k := range j.Keys {
			if t.FieldIndex(k) < 0 {
				return nil, marshalErrorf("Extraneous field definition for user type %s: %s", t.Name, k)
			}
		}
	} else {
		if j.Kind != JSONArray {
			return nil, marshalErrorf("tuple_type must be represented as JSON Array")
		}
		if len(j.List) > len(t.Fields) {
			return nil, marshalErrorf("Too many values (%d) for tuple with size %d", len(j.List), len(t.Fields))
		}
		fields = fields[:len(j.List)]
	}
	for i := range fields {
		var e JSON
		if t.Kind == UDT {
			e, _ = j.Member(t.Fields[i].Name)
		} else {
			e = j.List[i]
		}
		v, err := t.Fields[i].Type.FromJSON(e)
		if err != nil {
			return nil, err
		}
		fields[i] = v
	}
	return BuildTuple(fields...), nil
}
