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
	c := &t.layout.columns[fieldAggregateID]
	id, err := c.id(r)
	if err != nil || id.IsZero() {
		return 0, false
	}
	if id.text != "" {
		return textToken(c.typ, id.text), true
	}
	if c.typ == typeUUID || c.typ == typeTimeUUID {
		return Token(id.uuid), true
	}
	var canonical [36]byte
	return textToken(c.typ, appendUUID(canonical[:0], id.uuid)), true
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
