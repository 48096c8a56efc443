package outbox

import (
	"encoding/binary"
	"slices"
	"strconv"
)

// ByAggregate reports whether the partition key is the column of the aggregate
// alone, so that an aggregate has one token.
//
// For relays: may change in a minor version.
func (t Table) ByAggregate() bool {
	return slices.Equal(t.layout.partition, []string{t.layout.columns[fieldAggregateID].name})
}

// Token returns the token of the partition of an aggregate, in a table that is
// ByAggregate. The token of an id that does not fit the column is undefined.
//
// For relays: may change in a minor version.
func (t Table) Token(aggregate ID) int64 {
	typ := t.layout.columns[fieldAggregateID].typ
	if aggregate.text != "" {
		return textToken(typ, aggregate.text)
	}
	if typ == typeUUID || typ == typeTimeUUID {
		return Token(aggregate.uuid)
	}
	var canonical [36]byte
	return textToken(typ, appendUUID(canonical[:0], aggregate.uuid))
}

// TextToken returns the token of the partition of an aggregate with this
// published id (ID.String), in a table that is ByAggregate. The
// token of a text that does not fit the column is undefined.
//
// For relays: may change in a minor version.
func (t Table) TextToken(id string) int64 {
	return textToken(t.layout.columns[fieldAggregateID].typ, id)
}

// BytesToken is TextToken of bytes.
//
// For relays: may change in a minor version.
func (t Table) BytesToken(id []byte) int64 {
	return textToken(t.layout.columns[fieldAggregateID].typ, id)
}

// RowToken returns the token of the partition of a row, in a table that is
// ByAggregate; ok is false if the row lacks the key.
//
// For relays: may change in a minor version.
func (t Table) RowToken(r Row) (token int64, ok bool) {
	id, err := t.layout.columns[fieldAggregateID].id(r)
	if err != nil || id.IsZero() {
		return 0, false
	}
	return t.Token(id), true
}

func textToken[T ~string | ~[]byte](typ columnType, id T) int64 {
	switch typ {
	case typeUUID, typeTimeUUID:
		return Token(IDOf(id))
	case typeText:
		return KeyToken(id)
	}
	n, _ := strconv.ParseInt(string(id), 10, 64) // it was read as a number
	var key [8]byte
	if typ == typeInt {
		return KeyToken(binary.BigEndian.AppendUint32(key[:0], uint32(n)))
	}
	return KeyToken(binary.BigEndian.AppendUint64(key[:0], uint64(n)))
}
