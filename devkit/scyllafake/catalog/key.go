package catalog

import (
	"encoding/binary"
	"errors"
)

// ErrKeyTooLong is returned for a partition key component above 65535 bytes.
var ErrKeyTooLong = errors.New("key component longer than 65535 bytes")

// EncodeKey serialises partition key values: the value itself for one column,
// the composite form (length, value, 0 for each) for several.
func (t *Table) EncodeKey(values [][]byte) ([]byte, error) {
	if len(values) == 1 {
		return values[0], nil
	}
	for _, v := range values {
		if len(v) > 0xFFFF {
			return nil, ErrKeyTooLong
		}
	}
	return CompositeKey(values), nil
}

// CompositeKey returns the composite form of any number of values, one included.
func CompositeKey(values [][]byte) []byte {
	n := 0
	for _, v := range values {
		n += len(v) + 3
	}
	key := make([]byte, 0, n)
	for _, v := range values {
		key = binary.BigEndian.AppendUint16(key, uint16(len(v)))
		key = append(append(key, v...), 0)
	}
	return key
}

// CompareClustering orders clustering values as the table of these columns does; a prefix
// precedes its extensions.
func CompareClustering(cols []*Column, a, b [][]byte) int {
	for i := range min(len(a), len(b)) {
		c := cols[i].Type.Compare(a[i], b[i])
		if cols[i].Desc {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return len(a) - len(b)
}

// DecodeKey is the inverse of EncodeKey. The values alias key; dst is reused.
func (t *Table) DecodeKey(key []byte, dst [][]byte) ([][]byte, error) {
	dst = dst[:0]
	if len(t.PartitionKey) == 1 {
		return append(dst, key), nil
	}
	for range t.PartitionKey {
		if len(key) < 3 {
			return nil, errors.New("composite partition key ends early")
		}
		n := int(binary.BigEndian.Uint16(key))
		if len(key) < n+3 {
			return nil, errors.New("composite partition key ends early")
		}
		dst = append(dst, key[2:2+n:2+n])
		key = key[n+3:]
	}
	if len(key) != 0 {
		return nil, errors.New("composite partition key has bytes left over")
	}
	return dst, nil
}
