package cqltype

import (
	"encoding/binary"
	"math"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// AppendJSON appends a value as SELECT JSON and toJson() format it. Null is null; NaN
// and infinities are too. An empty number has no JSON: that error is a *cqlerr.Error. v
// must be valid for t.
func (t *Type) AppendJSON(dst, v []byte) ([]byte, error) {
	if v == nil {
		return append(dst, "null"...), nil
	}
	switch t.Kind {
	case ASCII, Varchar, UUID, TimeUUID, Inet, Timestamp, Date, Duration:
		return AppendJSONString(dst, t.Text(v)), nil
	case Blob:
		return AppendJSONString(dst, "0x"+t.Text(v)), nil
	case Boolean, Time:
		return append(dst, t.Text(v)...), nil
	case List, Set, Map, Tuple, UDT:
		return t.appendJSONComposite(dst, v)
	}
	if len(v) == 0 {
		return nil, cqlerr.Invalidf("Cannot create JSON string - deserialization error")
	}
	switch t.Kind {
	case Float, Double:
		if f := floatValue(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return append(dst, "null"...), nil
		}
	}
	return append(dst, t.Text(v)...), nil
}

func floatValue(v []byte) float64 {
	if len(v) == 4 {
		return float64(math.Float32frombits(binary.BigEndian.Uint32(v)))
	}
	return math.Float64frombits(binary.BigEndian.Uint64(v))
}

func (t *Type) appendJSONComposite(dst, v []byte) (_ []byte, err error) {
	open, end := byte('['), byte(']')
	if t.Kind == Map || t.Kind == UDT {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	n := 0
	sep := func() {
		if n++; n > 1 {
			dst = append(dst, ", "...)
		}
	}
	switch t.Kind {
	case List, Set:
		for e := range Elements(v) {
			sep()
			if dst, err = t.Elem.AppendJSON(dst, e); err != nil {
				return nil, err
			}
		}
	case Map:
		for k, e := range Pairs(v) {
			sep()
			if dst, err = t.Key.appendJSONKey(dst, k); err != nil {
				return nil, err
			}
			if dst, err = t.Elem.AppendJSON(append(dst, ": "...), e); err != nil {
				return nil, err
			}
		}
	default:
		for i, c := range Components(v) {
			if i >= len(t.Fields) {
				break
			}
			sep()
			if t.Kind == UDT {
				dst = append(AppendJSONString(dst, t.Fields[i].Name), ": "...)
			}
			if dst, err = t.Fields[i].Type.AppendJSON(dst, c); err != nil {
				return nil, err
			}
		}
	}
	return append(dst, end), nil
}

// appendJSONKey appends a map key: a string that, where the key is not one already,
// contains the key's JSON, with its quotes not escaped.
func (t *Type) appendJSONKey(dst, k []byte) ([]byte, error) {
	key, err := t.AppendJSON(nil, k)
	if err != nil {
		return nil, err
	}
	if len(key) > 0 && key[0] == '"' {
		return append(dst, key...), nil
	}
	return append(append(append(dst, '"'), key...), '"'), nil
}

// AppendJSONString appends s in double quotes. It escapes only the characters that
// require it.
func AppendJSONString(dst []byte, s string) []byte {
	const hexDigits = "0123456789ABCDEF"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			if c < 0x20 {
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			} else {
				dst = append(dst, c)
			}
		}
	}
	return append(dst, '"')
}
