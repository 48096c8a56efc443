package cqltype

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Format formats a value for people: texts, times and addresses in single quotes, blobs
// and durations in hexadecimal, collections in their brackets. Null is null; an empty
// value is 0x, or the form of an empty text, tuple or collection. It never fails: bytes
// that are not a value of t are formatted in hexadecimal.
func (t *Type) Format(v []byte) string { return string(t.AppendFormat(nil, v)) }

// AppendFormat appends what Format returns.
func (t *Type) AppendFormat(dst, v []byte) []byte {
	switch {
	case v == nil:
		return append(dst, "null"...)
	case t.Kind == ASCII || t.Kind == Varchar:
		return appendQuoted(dst, string(v))
	case t.IsCollection() || t.Kind == Tuple:
		return t.appendComposite(dst, v)
	case len(v) == 0 || t.Kind == Blob || t.Kind == Duration || t.Validate(v) != nil:
		return appendHex(dst, v)
	}
	be := binary.BigEndian
	switch t.Kind {
	case TinyInt, SmallInt, Int, BigInt, Time:
		n, _ := t.DecodeInt(v)
		return strconv.AppendInt(dst, n, 10)
	case Boolean:
		return strconv.AppendBool(dst, v[0] != 0)
	case Float:
		return strconv.AppendFloat(dst, float64(math.Float32frombits(be.Uint32(v))), 'g', -1, 32)
	case Double:
		return strconv.AppendFloat(dst, math.Float64frombits(be.Uint64(v)), 'g', -1, 64)
	case Varint:
		return DecodeVarint(v).Append(dst, 10)
	case Decimal:
		unscaled, scale := DecodeDecimal(v)
		dst = unscaled.Append(dst, 10)
		if scale != 0 {
			dst = append(dst, 'E')
			dst = strconv.AppendInt(dst, -int64(scale), 10)
		}
		return dst
	case Timestamp:
		return time.UnixMilli(int64(be.Uint64(v))).UTC().AppendFormat(dst, "'2006-01-02 15:04:05.000-0700'")
	case Date:
		return append(append(append(dst, '\''), FormatDate(be.Uint32(v))...), '\'')
	case UUID, TimeUUID:
		return append(dst, uuid.UUID(v).String()...)
	case Inet:
		a, _ := netip.AddrFromSlice(v)
		return append(append(append(dst, '\''), a.String()...), '\'')
	}
	return appendHex(dst, v)
}

// FormatDate formats a date, days with 1970-01-01 as 2^31, as yyyy-mm-dd.
func FormatDate(days uint32) string {
	return time.Unix((int64(days)-1<<31)*86400, 0).UTC().Format("2006-01-02")
}

func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '\'')
	dst = append(dst, strings.ReplaceAll(s, "'", "''")...)
	return append(dst, '\'')
}

func appendHex(dst, v []byte) []byte { return hex.AppendEncode(append(dst, "0x"...), v) }

func (t *Type) appendComposite(dst, v []byte) []byte {
	if t.Validate(v) != nil && len(v) > 0 {
		return appendHex(dst, v)
	}
	brackets := map[Kind]string{List: "[]", Set: "{}", Map: "{}", Tuple: "()"}[t.Kind]
	dst = append(dst, brackets[0])
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
			dst = t.Elem.AppendFormat(dst, e)
		}
	case Map:
		for k, e := range Pairs(v) {
			sep()
			dst = append(t.Key.AppendFormat(dst, k), ": "...)
			dst = t.Elem.AppendFormat(dst, e)
		}
	default:
		for i, c := range Components(v) {
			sep()
			dst = t.Fields[i].AppendFormat(dst, c)
		}
	}
	return append(dst, brackets[1])
}
