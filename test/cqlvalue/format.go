// Package cqlvalue formats values of CQL, for the messages of tests.
package cqlvalue

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

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Format formats a value of t for people: texts, times and addresses in single quotes, blobs
// and durations in hexadecimal, collections in their brackets. Null is null; an empty
// value is 0x, or the form of an empty text, tuple or collection. It never fails: bytes
// that are not a value of t are formatted in hexadecimal.
func Format(t *cqltype.Type, v []byte) string { return string(appendValue(nil, t, v)) }

func appendValue(dst []byte, t *cqltype.Type, v []byte) []byte {
	switch {
	case v == nil:
		return append(dst, "null"...)
	case t.Kind == cqltype.ASCII || t.Kind == cqltype.Varchar:
		return appendQuoted(dst, string(v))
	case t.IsCollection() || t.Kind == cqltype.Tuple:
		return appendComposite(dst, t, v)
	case len(v) == 0 || t.Kind == cqltype.Decimal && len(v) < 4 || t.Kind == cqltype.Blob || t.Kind == cqltype.Duration || t.Validate(v) != nil:
		return appendHex(dst, v)
	}
	be := binary.BigEndian
	switch t.Kind {
	case cqltype.TinyInt, cqltype.SmallInt, cqltype.Int, cqltype.BigInt, cqltype.Time:
		n, _ := t.DecodeInt(v)
		return strconv.AppendInt(dst, n, 10)
	case cqltype.Boolean:
		return strconv.AppendBool(dst, v[0] != 0)
	case cqltype.Float:
		return strconv.AppendFloat(dst, float64(math.Float32frombits(be.Uint32(v))), 'g', -1, 32)
	case cqltype.Double:
		return strconv.AppendFloat(dst, math.Float64frombits(be.Uint64(v)), 'g', -1, 64)
	case cqltype.Varint:
		return decodeVarint(v).Append(dst, 10)
	case cqltype.Decimal:
		unscaled, scale := decodeVarint(v[4:]), int32(be.Uint32(v))
		dst = unscaled.Append(dst, 10)
		if scale != 0 {
			dst = append(dst, 'E')
			dst = strconv.AppendInt(dst, -int64(scale), 10)
		}
		return dst
	case cqltype.Timestamp:
		return time.UnixMilli(int64(be.Uint64(v))).UTC().AppendFormat(dst, "'2006-01-02 15:04:05.000-0700'")
	case cqltype.Date:
		return append(append(append(dst, '\''), formatDate(be.Uint32(v))...), '\'')
	case cqltype.UUID, cqltype.TimeUUID:
		return append(dst, uuid.UUID(v).String()...)
	case cqltype.Inet:
		a, _ := netip.AddrFromSlice(v)
		return append(append(append(dst, '\''), a.String()...), '\'')
	}
	return appendHex(dst, v)
}

// decodeVarint decodes a two's complement of any length; no bytes are 0.
func decodeVarint(v []byte) *big.Int {
	n := new(big.Int).SetBytes(v)
	if len(v) > 0 && v[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(v))*8))
	}
	return n
}

// formatDate formats a date, days with 1970-01-01 as 2^31, as yyyy-mm-dd.
func formatDate(days uint32) string {
	return time.Unix((int64(days)-1<<31)*86400, 0).UTC().Format("2006-01-02")
}

func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '\'')
	dst = append(dst, strings.ReplaceAll(s, "'", "''")...)
	return append(dst, '\'')
}

func appendHex(dst, v []byte) []byte { return hex.AppendEncode(append(dst, "0x"...), v) }

func appendComposite(dst []byte, t *cqltype.Type, v []byte) []byte {
	if t.Validate(v) != nil && len(v) > 0 {
		return appendHex(dst, v)
	}
	brackets := map[cqltype.Kind]string{cqltype.List: "[]", cqltype.Set: "{}", cqltype.Map: "{}", cqltype.Tuple: "()"}[t.Kind]
	dst = append(dst, brackets[0])
	n := 0
	sep := func() {
		if n++; n > 1 {
			dst = append(dst, ", "...)
		}
	}
	switch t.Kind {
	case cqltype.List, cqltype.Set:
		for e := range cqltype.Elements(v) {
			sep()
			dst = appendValue(dst, t.Elem, e)
		}
	case cqltype.Map:
		for k, e := range cqltype.Pairs(v) {
			sep()
			dst = append(appendValue(dst, t.Key, k), ": "...)
			dst = appendValue(dst, t.Elem, e)
		}
	default:
		for i, c := range cqltype.Components(v) {
			sep()
			dst = appendValue(dst, t.Fields[i], c)
		}
	}
	return append(dst, brackets[1])
}
