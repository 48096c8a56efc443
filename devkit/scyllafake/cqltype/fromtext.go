package cqltype

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/big"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// Accepts reports whether a constant of the given class is allowed as a value of t. For
// others ScyllaDB returns `Invalid STRING constant (x) for "k" of type int`.
func (t *Type) Accepts(c cql.LiteralKind) bool {
	switch c {
	case cql.LitString:
		switch t.Kind {
		case ASCII, Varchar, Inet, Timestamp, Date, Time:
			return true
		}
	case cql.LitInteger:
		switch t.Kind {
		case BigInt, Decimal, Double, Float, Int, SmallInt, Timestamp, Date, TinyInt, Varint:
			return true
		}
	case cql.LitFloat:
		return t.Kind == Decimal || t.Kind == Double || t.Kind == Float
	case cql.LitUUID:
		return t.Kind == UUID || t.Kind == TimeUUID
	case cql.LitBool:
		return t.Kind == Boolean
	case cql.LitDuration:
		return t.Kind == Duration
	case cql.LitHex:
		return t.Kind == Blob
	}
	return false
}

// FromText parses the text of a value, as in a constant of CQL and a string in JSON:
// '2020-01-01' without its quotes for a date, hexadecimal digits without 0x for a blob.
// An empty text is the empty value of the types that are not texts themselves, except
// integers and booleans (false). Collections, tuples and durations have no such form here. Errors
// are *cqlerr.Error.
func (t *Type) FromText(s string) ([]byte, error) {
	switch t.Kind {
	case ASCII:
		for i := range len(s) {
			if s[i] >= 0x80 {
				return nil, marshalErrorf("Invalid ASCII character in string literal: '%s'", s)
			}
		}
		return []byte(s), nil
	case Varchar:
		return []byte(s), nil
	case Blob:
		return FromHex(s)
	case TinyInt, SmallInt, Int, BigInt:
		return t.intFromText(s)
	case Boolean:
		switch strings.ToLower(s) {
		case "true":
			return []byte{1}, nil
		case "false", "":
			return []byte{0}, nil
		}
		return nil, marshalErrorf("unable to make boolean from '%s'", s)
	case List, Set, Map, Tuple, Custom, Duration:
		return nil, cqlerr.Unsupported("a value of type " + t.String() + " written as text")
	}
	if s == "" {
		return []byte{}, nil
	}
	switch t.Kind {
	case Float, Double:
		return t.floatFromText(s)
	case Varint:
		n, ok := new(big.Int).SetString(strings.TrimPrefix(s, "+"), 10)
		if !ok {
			return nil, marshalErrorf("unable to make int from '%s'", s)
		}
		return EncodeVarint(n), nil
	case Decimal:
		unscaled, scale, ok := parseDecimal(s)
		if !ok {
			return nil, marshalErrorf("unable to make BigDecimal from '%s'", s)
		}
		return EncodeDecimal(unscaled, scale), nil
	case Timestamp:
		ms, err := ParseTimestamp(s)
		return EncodeInt64(ms), err
	case Date:
		days, err := ParseDate(s)
		return EncodeUint32(days), err
	case Time:
		ns, err := ParseTime(s)
		return EncodeInt64(ns), err
	case UUID, TimeUUID:
		return t.uuidFromText(s)
	case Inet:
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return nil, marshalErrorf("Failed to parse inet_addr from '%s'", s)
		}
		return a.AsSlice(), nil
	}
	return nil, cqlerr.Unsupported("a value of type " + t.String() + " written as text")
}

// FromHex parses the digits of a blob constant. An odd number of them is a server error
// of ScyllaDB, code 0000.
func FromHex(s string) ([]byte, error) {
	if len(s)%2 != 0 {
		return nil, cqlerr.New(cqlerr.Server, "An hex string representing bytes must have an even length")
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return nil, cqlerr.New(cqlerr.Server, "Non-hex characters in %s", s)
	}
	return b, nil
}

func (t *Type) intFromText(s string) ([]byte, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || s == "" || strings.Contains(s, "_") {
		return nil, marshalErrorf("Invalid number format '%s'", s)
	}
	b, ok := t.EncodeInt(n)
	if !ok {
		return nil, marshalErrorf("Value out of range for type %s: '%s'", t.MarshalName(), s)
	}
	return b, nil
}

// EncodeInt serialises n as an integer type, timestamp or time; ok is false when it
// does not fit or t is of another type.
func (t *Type) EncodeInt(n int64) (v []byte, ok bool) {
	switch t.Kind {
	case TinyInt, SmallInt, Int, BigInt, Timestamp, Time:
		size := t.FixedSize()
		return EncodeInt64(n)[8-size:], extend(n, size) == n
	case Varint:
		return EncodeVarint(big.NewInt(n)), true
	}
	return nil, false
}

// DecodeInt decodes a value of an integer type, timestamp, time or date; ok is false
// for null, the empty value and other types.
func (t *Type) DecodeInt(v []byte) (n int64, ok bool) {
	switch t.Kind {
	case TinyInt, SmallInt, Int, BigInt, Timestamp, Time, Date:
	default:
		return 0, false
	}
	size := t.FixedSize()
	if len(v) != size {
		return 0, false
	}
	for _, b := range v {
		n = n<<8 | int64(b)
	}
	if t.Kind == Date { // has no sign
		return n, true
	}
	return extend(n, size), true
}

// extend returns the number with the sign of its lowest bytes.
func extend(n int64, bytes int) int64 {
	shift := 64 - 8*bytes
	return n << shift >> shift
}

// EncodeInt64 serialises a bigint, counter, timestamp or time.
func EncodeInt64(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// EncodeInt32 serialises an int.
func EncodeInt32(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// EncodeUint32 serialises a date: days, with 1970-01-01 as 2^31.
func EncodeUint32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// EncodeBool serialises a boolean.
func EncodeBool(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

// EncodeDouble serialises a double; every NaN becomes the same one.
func EncodeDouble(f float64) []byte {
	u := math.Float64bits(f)
	if f != f {
		u = 0x7ff8000000000000
	}
	return binary.BigEndian.AppendUint64(nil, u)
}

// EncodeFloat serialises a float; every NaN becomes the same one.
func EncodeFloat(f float32) []byte {
	u := math.Float32bits(f)
	if f != f {
		u = 0x7fc00000
	}
	return binary.BigEndian.AppendUint32(nil, u)
}

func (t *Type) floatFromText(s string) ([]byte, error) {
	if strings.EqualFold(s, "-nan") { // strconv parses no sign of NaN, and the bytes have none
		s = s[1:]
	}
	size := 8 * t.FixedSize()
	f, err := strconv.ParseFloat(s, size)
	if err != nil || strings.ContainsAny(s, "_xXpP") {
		return nil, marshalErrorf("Invalid number format '%s'", s)
	}
	if size == 32 {
		return EncodeFloat(float32(f)), nil
	}
	return EncodeDouble(f), nil
}

// parseDecimal parses [sign]digits[.digits][e[sign]digits].
func parseDecimal(s string) (unscaled *big.Int, scale int32, ok bool) {
	mantissa, exp := s, int64(0)
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		var err error
		if exp, err = strconv.ParseInt(s[i+1:], 10, 40); err != nil {
			return nil, 0, false
		}
		mantissa = s[:i]
	}
	whole, frac, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole, "+-") + frac
	if len(whole)-len(strings.TrimLeft(whole, "+-")) > 1 || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return nil, 0, false
	}
	unscaled, _ = new(big.Int).SetString(digits, 10)
	if strings.HasPrefix(whole, "-") {
		unscaled.Neg(unscaled)
	}
	wide := int64(len(frac)) - exp
	return unscaled, int32(wide), wide == int64(int32(wide))
}

func (t *Type) uuidFromText(s string) ([]byte, error) {
	u, err := uuid.Parse(s)
	if err != nil || len(s) != 36 {
		if t.Kind == TimeUUID {
			return nil, marshalErrorf("Invalid UUID format (%s)", s)
		}
		return nil, marshalErrorf("Cannot parse uuid from '%s'", s)
	}
	if t.Kind == TimeUUID && u[6]>>4 != 1 {
		return nil, marshalErrorf("Unsupported UUID version (%d)", u[6]>>4)
	}
	return u[:], nil
}
