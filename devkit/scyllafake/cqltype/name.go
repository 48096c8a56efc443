package cqltype

import (
	"fmt"
	"strings"
)

// kindNames are the CQL names of the types without parameters.
var kindNames = map[Kind]string{
	ASCII: "ascii", BigInt: "bigint", Blob: "blob", Boolean: "boolean",
	Date: "date", Decimal: "decimal", Double: "double", Duration: "duration", Float: "float",
	Inet: "inet", Int: "int", SmallInt: "smallint", Varchar: "text", Time: "time",
	Timestamp: "timestamp", TimeUUID: "timeuuid", TinyInt: "tinyint", UUID: "uuid", Varint: "varint",
}

// String returns the CQL name of t as in system_schema.columns.type: text for varchar,
// a tuple always inside frozen<>.
func (t *Type) String() string {
	var b strings.Builder
	t.writeName(&b)
	return b.String()
}

func (t *Type) writeName(b *strings.Builder) {
	frozen := t.Kind == Tuple || t.Frozen && t.IsCollection()
	if frozen {
		b.WriteString("frozen<")
	}
	switch t.Kind {
	case List, Set:
		b.WriteString(map[Kind]string{List: "list<", Set: "set<"}[t.Kind])
		t.Elem.writeName(b)
		b.WriteByte('>')
	case Map:
		b.WriteString("map<")
		t.Key.writeName(b)
		b.WriteString(", ")
		t.Elem.writeName(b)
		b.WriteByte('>')
	case Tuple:
		b.WriteString("tuple<")
		for i := range t.Fields {
			if i > 0 {
				b.WriteString(", ")
			}
			t.Fields[i].writeName(b)
		}
		b.WriteByte('>')
	default:
		if name, ok := kindNames[t.Kind]; ok {
			b.WriteString(name)
		} else {
			fmt.Fprintf(b, "type 0x%04X", uint16(t.Kind))
		}
	}
	if frozen {
		b.WriteByte('>')
	}
}

// QuoteIdent returns name as in CQL: bare when it is a lower-case identifier, otherwise
// in double quotes.
func QuoteIdent(name string) string {
	bare := name != ""
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || i > 0 && (c == '_' || c >= '0' && c <= '9')) {
			bare = false
			break
		}
	}
	if bare {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// marshalClasses are the class names of types in ScyllaDB's messages.
var marshalClasses = map[Kind]string{
	ASCII: "AsciiType", BigInt: "LongType", Blob: "BytesType", Boolean: "BooleanType",
	Date: "SimpleDateType", Decimal: "DecimalType",
	Double: "DoubleType", Duration: "DurationType", Float: "FloatType", Inet: "InetAddressType",
	Int: "Int32Type", SmallInt: "ShortType", Varchar: "UTF8Type", Time: "TimeType",
	Timestamp: "TimestampType", TimeUUID: "TimeUUIDType", TinyInt: "ByteType", UUID: "UUIDType",
	Varint: "IntegerType", List: "ListType", Set: "SetType", Map: "MapType", Tuple: "TupleType",
}

// MarshalName returns the class name of t in ScyllaDB's messages,
// org.apache.cassandra.db.marshal.Int32Type for int.
func (t *Type) MarshalName() string {
	const pkg = "org.apache.cassandra.db.marshal."
	var b strings.Builder
	frozen := t.Frozen && t.IsCollection()
	if frozen {
		b.WriteString(pkg + "FrozenType(")
	}
	b.WriteString(pkg)
	b.WriteString(marshalClasses[t.Kind])
	switch t.Kind {
	case List, Set:
		b.WriteString("(" + t.Elem.MarshalName() + ")")
	case Map:
		b.WriteString("(" + t.Key.MarshalName() + "," + t.Elem.MarshalName() + ")")
	case Tuple:
		b.WriteByte('(')
		for i := range t.Fields {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(t.Fields[i].MarshalName())
		}
		b.WriteByte(')')
	}
	if frozen {
		b.WriteByte(')')
	}
	return b.String()
}
