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
	TASCII     = &Type{Kind: ASCII}
	TBigInt    = &Type{Kind: BigInt}
	TBlob      = &Type{Kind: Blob}
	TBoolean   = &Type{Kind: Boolean}
	TDate      = &Type{Kind: Date}
	TDecimal   = &Type{Kind: Decimal}
	TDouble    = &Type{Kind: Double}
	TDuration  = &Type{Kind: Duration}
	TFloat     = &Type{Kind: Float}
	TInet      = &Type{Kind: Inet}
	TInt       = &Type{Kind: Int}
	TSmallInt  = &Type{Kind: SmallInt}
	TText      = &Type{Kind: Varchar}
	TTime      = &Type{Kind: Time}
	TTimestamp = &Type{Kind: Timestamp}
	TTimeUUID  = &Type{Kind: TimeUUID}
	TTinyInt   = &Type{Kind: TinyInt}
	TUUID      = &Type{Kind: UUID}
	TVarint    = &Type{Kind: Varint}
)

// kinds describes the types: their CQL name, the end of their class name in ScyllaDB's
// messages, and the length of every value but the empty one, 0 if it varies.
var kinds = map[Kind]struct {
	name, class string
	size        int
}{
	ASCII: {"ascii", "AsciiType", 0}, BigInt: {"bigint", "LongType", 8}, Blob: {"blob", "BytesType", 0},
	Boolean: {"boolean", "BooleanType", 1}, Date: {"date", "SimpleDateType", 4}, Decimal: {"decimal", "DecimalType", 0},
	Double: {"double", "DoubleType", 8}, Duration: {"duration", "DurationType", 0}, Float: {"float", "FloatType", 4},
	Inet: {"inet", "InetAddressType", 0}, Int: {"int", "Int32Type", 4}, SmallInt: {"smallint", "ShortType", 2},
	Varchar: {"text", "UTF8Type", 0}, Time: {"time", "TimeType", 8}, Timestamp: {"timestamp", "TimestampType", 8},
	TimeUUID: {"timeuuid", "TimeUUIDType", 16}, TinyInt: {"tinyint", "ByteType", 1}, UUID: {"uuid", "UUIDType", 16},
	Varint: {"varint", "IntegerType", 0},
	List:   {"list", "ListType", 0}, Set: {"set", "SetType", 0}, Map: {"map", "MapType", 0}, Tuple: {"tuple", "TupleType", 0},
}

// primitives are the types without parameters by their CQL name. varchar is another
// name of text, which is the one in system_schema.
var primitives = func() map[string]*Type {
	m := map[string]*Type{"varchar": TText}
	for _, t := range []*Type{
		TASCII, TBigInt, TBlob, TBoolean, TDate, TDecimal, TDouble, TDuration, TFloat, TInet, TInt,
		TSmallInt, TText, TTime, TTimestamp, TTimeUUID, TTinyInt, TUUID, TVarint,
	} {
		m[kinds[t.Kind].name] = t
	}
	return m
}()

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
