package cqltype

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/big"
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
	case t.IsCollection() || t.Kind == Tuple || t.Kind == UDT:
		return t.appendComposite(dst, v)
	case len(v) == 0 || t.Kind == Blob || t.Kind == Duration || t.Validate(v) != nil:
		return appendHex(dst, v)
	}
	be := binary.BigEndian
	switch t.Kind {
	case TinyInt, SmallInt, Int, BigInt, Counter, Time:
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

// FormatTime formats nanoseconds since midnight as hh:mm:ss.fffffffff.
func FormatTime(nanos int64) string {
	return time.Unix(0, nanos).UTC().Format("15:04:05.000000000")
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
	brackets := map[Kind]string{List: "[]", Set: "{}", Map: "{}", Tuple: "()", UDT: "{}"}[t.Kind]
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
			if t.Kind == UDT {
				dst = append(append(dst, t.Fields[i].Name...), ": "...)
			}
			dst = t.Fields[i].Type.AppendFormat(dst, c)
		}
	}
	return append(dst, brackets[1])
}

// Text formats a value as ScyllaDB's CAST(… AS text) does: without quotes, times as ISO
// 8601, decimals without an exponent. Null and empty values are the empty text. v must
// be valid for t, which must not be a collection.
func (t *Type) Text(v []byte) string {
	if len(v) == 0 {
		return ""
	}
	switch t.Kind {
	case ASCII, Varchar:
		return string(v)
	case Blob:
		return hex.EncodeToString(v)
	case Float, Double:
		return formatFloat(floatValue(v), 8*t.FixedSize())
	case Decimal:
		return decimalText(DecodeDecimal(v))
	case Timestamp:
		n, _ := t.DecodeInt(v)
		at := time.UnixMilli(n).UTC()
		if n%1000 == 0 {
			return at.Format("2006-01-02T15:04:05")
		}
		return at.Format("2006-01-02T15:04:05.000000")
	case Date:
		n, _ := t.DecodeInt(v)
		return FormatDate(uint32(n))
	case Time:
		n, _ := t.DecodeInt(v)
		return FormatTime(n)
	case UUID, TimeUUID:
		if len(v) == 16 {
			return uuid.UUID(v).String()
		}
	case Inet:
		if a, ok := netip.AddrFromSlice(v); ok {
			return a.String()
		}
	case Duration:
		return FormatDuration(DecodeDuration(v))
	}
	return t.Format(v)
}

// formatFloat returns the shortest text that parses to f, with an exponent where
// ScyllaDB's formatting library has one: below 1e-4 and from 1e16 on.
func formatFloat(f float64, bits int) string {
	if a := max(f, -f); a == 0 || a >= 1e-4 && a < 1e16 {
		return strconv.FormatFloat(f, 'f', -1, bits)
	}
	return strconv.FormatFloat(f, 'e', -1, bits)
}

// decimalText formats a decimal in full, without zeros at the end of its fraction.
func decimalText(unscaled *big.Int, scale int32) string {
	// A longer text would be megabytes of zeros.
	const widest = 1 << 16
	if unscaled.Sign() == 0 {
		return "0"
	}
	if scale > widest || scale < -widest {
		return unscaled.String() + "E" + strconv.FormatInt(-int64(scale), 10)
	}
	digits := new(big.Int).Abs(unscaled).String()
	switch {
	case scale < 0:
		digits += strings.Repeat("0", int(-scale))
	case scale > 0:
		if missing := int(scale) - len(digits) + 1; missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		point := len(digits) - int(scale)
		digits = strings.TrimRight(digits[:point]+"."+digits[point:], "0")
		digits = strings.TrimSuffix(digits, ".")
	}
	if unscaled.Sign() < 0 {
		return "-" + digits
	}
	return digits
}
