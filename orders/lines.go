package orders

import (
	"encoding/binary"
	"errors"

	"github.com/gocql/gocql"
)

// Lines are the items of an order. Their column type is
// frozen<list<frozen<tuple<text, text, int, decimal>>>>. Lines encode
// themselves because gocql would use reflection for each field of each line.
type Lines []Line

var errLines = errors.New("orders: lines are not a list<tuple<text, text, int, decimal>>")

// MarshalCQL encodes the lines in native protocol v4: a count, then each tuple
// with its length, each field with its own length.
func (ls Lines) MarshalCQL(gocql.TypeInfo) ([]byte, error) {
	n := 4
	for i := range ls {
		n += 48 + len(ls[i].SKU) + len(ls[i].Description)
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, n), uint32(len(ls)))
	for i := range ls {
		l := &ls[i]
		outer := len(b)
		b = append(b, 0, 0, 0, 0)
		b = binary.BigEndian.AppendUint32(b, uint32(len(l.SKU)))
		b = append(b, l.SKU...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(l.Description)))
		b = append(b, l.Description...)
		b = binary.BigEndian.AppendUint32(b, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(int32(l.Quantity)))
		inner := len(b)
		b = append(b, 0, 0, 0, 0)
		b = l.UnitPrice.appendCQL(b)
		binary.BigEndian.PutUint32(b[inner:], uint32(len(b)-inner-4))
		binary.BigEndian.PutUint32(b[outer:], uint32(len(b)-outer-4))
	}
	return b, nil
}

// UnmarshalCQL replaces ls by the decoded lines; null gives nil.
func (ls *Lines) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	*ls = nil
	if len(data) == 0 {
		return nil
	}
	if len(data) < 4 {
		return errLines
	}
	n := binary.BigEndian.Uint32(data)
	data = data[4:]
	if uint64(n)*4 > uint64(len(data)) { // each line has at least its length
		return errLines
	}
	out := make(Lines, 0, n)
	for range n {
		var tuple []byte
		var ok bool
		if tuple, data, ok = cut(data); !ok {
			return errLines
		}
		var f [4][]byte
		for i := range f {
			if f[i], tuple, ok = cut(tuple); !ok {
				return errLines
			}
		}
		if len(tuple) > 0 || len(f[2]) != 4 {
			return errLines
		}
		l := Line{SKU: string(f[0]), Description: string(f[1]), Quantity: int(int32(binary.BigEndian.Uint32(f[2])))}
		if err := l.UnitPrice.UnmarshalCQL(nil, f[3]); err != nil {
			return err
		}
		out = append(out, l)
	}
	if len(data) > 0 {
		return errLines
	}
	*ls = out
	return nil
}

// cut returns the first length-prefixed value of b and the remaining bytes.
func cut(b []byte) (v, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(n) > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
