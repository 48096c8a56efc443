package releases

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

// cell is a value of a column as JSON: blobs as "0x…", uuids and times as texts, sets and
// tuples as lists. Nil is null. A driver scans and binds it as a value of any type that the
// product's tables have.
type cell struct{ json.RawMessage }

// UnmarshalCQL implements gocql.Unmarshaler.
func (c *cell) UnmarshalCQL(info gocql.TypeInfo, data []byte) (err error) {
	c.RawMessage = nil
	if data == nil {
		return nil
	}
	v, err := readCell(info, data)
	if err == nil {
		c.RawMessage, err = json.Marshal(v)
	}
	return err
}

// MarshalCQL implements gocql.Marshaler.
func (c cell) MarshalCQL(info gocql.TypeInfo) ([]byte, error) {
	if c.RawMessage == nil || string(c.RawMessage) == "null" {
		return nil, nil
	}
	v, err := c.value(info)
	if err != nil {
		return nil, fmt.Errorf("%s as %v: %w", c.RawMessage, info, err)
	}
	return gocql.Marshal(info, v)
}

// readCell returns a value that marshals to the JSON of data.
func readCell(info gocql.TypeInfo, data []byte) (any, error) {
	switch info.Type() {
	case gocql.TypeList, gocql.TypeSet:
		return read[[]cell](info, data)
	case gocql.TypeMap:
		if hasNumberKeys(info) {
			return read[map[int64]cell](info, data)
		}
		return read[map[string]cell](info, data)
	case gocql.TypeTuple:
		parts := make([]cell, len(info.(gocql.TupleTypeInfo).Elems))
		dest := make([]any, len(parts))
		for i := range parts {
			dest[i] = &parts[i]
		}
		return parts, gocql.Unmarshal(info, data, dest)
	case gocql.TypeBlob:
		return "0x" + hex.EncodeToString(data), nil
	case gocql.TypeTimestamp:
		at, err := read[time.Time](info, data)
		return strings.Replace(at.(time.Time).UTC().Format("2006-01-02T15:04:05.000Z"), ".000Z", "Z", 1), err
	case gocql.TypeUUID, gocql.TypeTimeUUID:
		return read[gocql.UUID](info, data)
	case gocql.TypeDecimal:
		d, err := read[inf.Dec](info, data)
		n := d.(inf.Dec)
		return json.Number(n.String()), err
	case gocql.TypeInt, gocql.TypeBigInt:
		return read[int64](info, data)
	case gocql.TypeBoolean:
		return read[bool](info, data)
	case gocql.TypeDouble:
		return read[float64](info, data)
	}
	return read[string](info, data)
}

func read[T any](info gocql.TypeInfo, data []byte) (any, error) {
	var v T
	err := gocql.Unmarshal(info, data, &v)
	return v, err
}

// value returns the cell as a value that gocql marshals as a type.
func (c cell) value(info gocql.TypeInfo) (any, error) {
	switch info.Type() {
	case gocql.TypeList, gocql.TypeSet:
		return decode[[]cell](c)
	case gocql.TypeMap:
		if hasNumberKeys(info) {
			return decode[map[int64]cell](c)
		}
		return decode[map[string]cell](c)
	case gocql.TypeTuple:
		return decode[[]cell](c)
	case gocql.TypeBlob:
		text, err := decode[string](c)
		if err != nil {
			return nil, err
		}
		return hex.DecodeString(strings.TrimPrefix(text.(string), "0x"))
	case gocql.TypeTimestamp:
		return decode[time.Time](c)
	case gocql.TypeUUID, gocql.TypeTimeUUID:
		return decode[gocql.UUID](c)
	case gocql.TypeDecimal:
		d, ok := new(inf.Dec).SetString(string(c.RawMessage))
		if !ok {
			return nil, fmt.Errorf("no decimal")
		}
		return d, nil
	case gocql.TypeInt, gocql.TypeBigInt:
		return decode[int64](c)
	case gocql.TypeBoolean:
		return decode[bool](c)
	case gocql.TypeDouble:
		return decode[float64](c)
	}
	return decode[string](c)
}

func decode[T any](c cell) (any, error) {
	var v T
	err := json.Unmarshal(c.RawMessage, &v)
	return v, err
}

// hasNumberKeys reports whether the keys of a map are numbers.
func hasNumberKeys(info gocql.TypeInfo) bool {
	return info.(gocql.CollectionType).Key.Type() == gocql.TypeBigInt
}
