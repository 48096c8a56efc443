package outbox

import (
	"encoding/binary"
	"strconv"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/keys"
)

// byAggregate is rows.ByAggregate.
func (t Table) byAggregate() bool {
	return t.columnLayout().byAggregate()
}

// token is rows.Token.
func (t Table) token(aggregate ID) int64 {
	if t.columnLayout().columns[fieldAggregateID].parts != nil {
		return t.columnLayout().compoundToken(aggregate)
	}
	typ := t.columnLayout().columns[fieldAggregateID].typ
	if aggregate.text != "" {
		return textToken(typ, aggregate.text)
	}
	if typ == typeUUID || typ == typeTimeUUID {
		return keys.UUIDToken(aggregate.uuid)
	}
	var canonical [36]byte
	return textToken(typ, keys.AppendUUID(canonical[:0], aggregate.uuid))
}

// bytesToken is rows.BytesToken.
func (t Table) bytesToken(id []byte) int64 {
	if t.columnLayout().columns[fieldAggregateID].parts != nil {
		return t.columnLayout().compoundToken(IDFromText(string(id)))
	}
	return textToken(t.columnLayout().columns[fieldAggregateID].typ, id)
}

// textToken is rows.TextToken.
func (t Table) textToken(id string) int64 {
	if t.columnLayout().columns[fieldAggregateID].parts != nil {
		return t.columnLayout().compoundToken(IDFromText(id))
	}
	return textToken(t.columnLayout().columns[fieldAggregateID].typ, id)
}

// rowToken is rows.RowToken.
func (t Table) rowToken(r row) (token int64, ok bool) {
	if r == nil {
		return 0, false
	}
	id, err := t.columnLayout().columns[fieldAggregateID].id(r)
	if err != nil || id.IsZero() {
		return 0, false
	}
	return t.token(id), true
}

func textToken[T ~string | ~[]byte](typ columnType, id T) int64 {
	switch typ {
	case typeUUID, typeTimeUUID:
		return keys.UUIDToken(keys.IDOf(id))
	case typeText:
		return keys.Token(id)
	}
	n, _ := strconv.ParseInt(string(id), 10, 64) // it was read as a number
	var key [8]byte
	if typ == typeInt {
		return keys.Token(binary.BigEndian.AppendUint32(key[:0], uint32(n)))
	}
	return keys.Token(binary.BigEndian.AppendUint64(key[:0], uint64(n)))
}
