// Package cqltype implements the CQL data types: their names, their serialised form in
// protocol v4, their order, and their text form.
//
// A value is always its serialised bytes: nil is null, an empty non-nil slice is the
// empty value, which most types accept and distinguish from null.
package cqltype

// Kind is a type's option id in the protocol.
type Kind uint16

// Type kinds. Text columns are Varchar.
const (
	Custom    Kind = 0x0000
	ASCII     Kind = 0x0001
	BigInt    Kind = 0x0002
	Blob      Kind = 0x0003
	Boolean   Kind = 0x0004
	Counter   Kind = 0x0005
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
	UDT       Kind = 0x0030
	Tuple     Kind = 0x0031
)

// Type is a CQL type. Types are immutable and safe for concurrent use.
type Type struct {
	Kind Kind
	// Key is the key type of a map; Elem the element of a list or set, the value of a map.
	Key, Elem *Type
	// Fields are the fields of a UDT, or the unnamed components of a tuple.
	Fields []Field
	// Keyspace and Name name a UDT.
	Keyspace, Name string
	// Frozen is meaningful for lists, sets, maps and UDTs; tuples are always frozen.
	Frozen bool
}

// Field is a field of a UDT or tuple.
type Field struct {
	Name string
	Type *Type
}
