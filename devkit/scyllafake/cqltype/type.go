// Package cqltype implements the CQL data types: their names, their serialised form in
// protocol v4, their order, and their text form.
//
// A value is always its serialised bytes: nil is null, an empty non-nil slice is the
// empty value, which most types accept and distinguish from null.
package cqltype

import "slices"

// Kind is a type's option id in the protocol.
type Kind uint16

// Type kinds. Text columns are Varchar.
const (
	Custom    Kind = 0x0000
	ASCII     Kind = 0x0001
	BigInt    Kind = 0x0002
	Blob      Kind = 0x0003
	Boolean   Kind = 0x0004
	Decimal   Kind = 0x0006
	Double    Kind = 0x0007
	Float     Kind = 0x0008
	Int       Kind = 0x0009
	Timestamp Kind = 0x000B
	UUID      Kind = 0x000C
	Varchar   Kind = 0x000D
	Varint    Kind = 0x000E
	TimeUUID  Kind = 0x000F
	Inet      Kind = 0x0010
	Date      Kind = 0x0011
	Time      Kind = 0x0012
	SmallInt  Kind = 0x0013
	TinyInt   Kind = 0x0014
	Duration  Kind = 0x0015
	List      Kind = 0x0020
	Map       Kind = 0x0021
	Set       Kind = 0x0022
	Tuple     Kind = 0x0031
)

// Type is a CQL type. Types are immutable and safe for concurrent use.
type Type struct {
	Kind Kind
	// Key is the key type of a map; Elem the element of a list or set, the value of a map.
	Key, Elem *Type
	// Fields are the components of a tuple.
	Fields []*Type
	// Frozen is meaningful for lists, sets and maps; tuples are always frozen.
	Frozen bool
}

// The types without parameters. They are compared by pointer or by Equal.
var (
	TASCII     = primitive(ASCII, "ascii", "AsciiType", 0, "")
	TBigInt    = primitive(BigInt, "bigint", "LongType", 8, "Validation failed for type org.apache.cassandra.db.marshal.LongType: got %d bytes")
	TBlob      = primitive(Blob, "blob", "BytesType", 0, "")
	TBoolean   = primitive(Boolean, "boolean", "BooleanType", 1, "Validation failed for boolean, got %d bytes")
	TDate      = primitive(Date, "date", "SimpleDateType", 4, "Expected 4 byte long for date (%d)")
	TDecimal   = primitive(Decimal, "decimal", "DecimalType", 0, "")
	TDouble    = primitive(Double, "double", "DoubleType", 8, "Expected 8 bytes for a floating type, got %d")
	TDuration  = primitive(Duration, "duration", "DurationType", 0, "")
	TFloat     = primitive(Float, "float", "FloatType", 4, "Expected 4 bytes for a floating type, got %d")
	TInet      = primitive(Inet, "inet", "InetAddressType", 0, "")
	TInt       = primitive(Int, "int", "Int32Type", 4, "Validation failed for type org.apache.cassandra.db.marshal.Int32Type: got %d bytes")
	TSmallInt  = primitive(SmallInt, "smallint", "ShortType", 2, "Expected 2 bytes for a smallint (%d)")
	TText      = primitive(Varchar, "text", "UTF8Type", 0, "")
	TTime      = primitive(Time, "time", "TimeType", 8, "Expected 8 byte long for time (%d)")
	TTimestamp = primitive(Timestamp, "timestamp", "TimestampType", 8, "Validation failed for timestamp - got %d bytes")
	TTimeUUID  = primitive(TimeUUID, "timeuuid", "TimeUUIDType", 16, "Validation failed for timeuuid - got %d bytes")
	TTinyInt   = primitive(TinyInt, "tinyint", "ByteType", 1, "Expected 1 byte for a tinyint (%d)")
	TUUID      = primitive(UUID, "uuid", "UUIDType", 16, "Validation failed for uuid - got %d bytes")
	TVarint    = primitive(Varint, "varint", "IntegerType", 0, "")
)

// kinds describes the types: their CQL name, the end of their class name in ScyllaDB's
// messages, the length of every value but the empty one, 0 if it varies, and the message
// that refuses another length.
var kinds = map[Kind]kind{
	List: {name: "list", class: "ListType"}, Set: {name: "set", class: "SetType"}, Map: {name: "map", class: "MapType"},
	Tuple: {name: "tuple", class: "TupleType"},
}

type kind struct {
	name, class string
	size        int
	badSize     string
}

// primitives are the types without parameters by their CQL name. varchar is another
// name of text, which is the one in system_schema.
var primitives = map[string]*Type{}

func primitive(k Kind, name, class string, size int, badSize string) *Type {
	t := &Type{Kind: k}
	kinds[k], primitives[name] = kind{name, class, size, badSize}, t
	if k == Varchar {
		primitives["varchar"] = t
	}
	return t
}

// FixedSize returns the length of every value of t but the empty one, or 0 for types of
// varying length.
func (t *Type) FixedSize() int { return kinds[t.Kind].size }

// NewList returns list<elem>, not frozen.
func NewList(elem *Type) *Type { return &Type{Kind: List, Elem: elem} }

// NewSet returns set<elem>, not frozen.
func NewSet(elem *Type) *Type { return &Type{Kind: Set, Elem: elem} }

// NewMap returns map<key, value>, not frozen.
func NewMap(key, value *Type) *Type { return &Type{Kind: Map, Key: key, Elem: value} }

// NewTuple returns tuple<types…>; its components become frozen.
func NewTuple(types ...*Type) *Type {
	fields := make([]*Type, len(types))
	for i, t := range types {
		fields[i] = t.Freeze()
	}
	return &Type{Kind: Tuple, Fields: fields, Frozen: true}
}

// Freeze returns t as inside frozen<>: frozen with all its parts. Types that cannot be
// frozen are returned unchanged.
func (t *Type) Freeze() *Type {
	if t.Frozen || !t.IsCollection() {
		return t
	}
	c := *t
	c.Frozen = true
	if c.Key != nil {
		c.Key = c.Key.Freeze()
	}
	c.Elem = c.Elem.Freeze()
	return &c
}

// IsCollection reports whether t is a list, set or map, frozen or not.
func (t *Type) IsCollection() bool {
	return t.Kind == List || t.Kind == Set || t.Kind == Map
}

// IsMultiCell reports whether a column of type t is stored cell by cell: a
// list, set or map that is not frozen.
func (t *Type) IsMultiCell() bool {
	return !t.Frozen && t.IsCollection()
}

// Equal reports whether t and o are the same type, frozenness included.
func (t *Type) Equal(o *Type) bool {
	if t == o {
		return true
	}
	if t == nil || o == nil || t.Kind != o.Kind || t.Frozen != o.Frozen {
		return false
	}
	return t.Key.Equal(o.Key) && t.Elem.Equal(o.Elem) && slices.EqualFunc(t.Fields, o.Fields, (*Type).Equal)
}

func (t *Type) containsSetOrMap() bool {
	if t == nil {
		return false
	}
	if t.Kind == Set || t.Kind == Map || t.Elem.containsSetOrMap() {
		return true
	}
	for i := range t.Fields {
		if t.Fields[i].containsSetOrMap() {
			return true
		}
	}
	return false
}

func (t *Type) containsDuration() bool {
	if t == nil {
		return false
	}
	if t.Kind == Duration || t.Key.containsDuration() || t.Elem.containsDuration() {
		return true
	}
	for i := range t.Fields {
		if t.Fields[i].containsDuration() {
			return true
		}
	}
	return false
}
