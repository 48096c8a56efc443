package conformance

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// typeText is a type in the words of CQL; every text type is varchar, as on the wire.
func typeText(t datatype.DataType) string {
	switch t := t.(type) {
	case *datatype.List:
		return "list<" + typeText(t.ElementType) + ">"
	case *datatype.Set:
		return "set<" + typeText(t.ElementType) + ">"
	case *datatype.Map:
		return "map<" + typeText(t.KeyType) + ", " + typeText(t.ValueType) + ">"
	case *datatype.Tuple:
		fields := make([]string, len(t.FieldTypes))
		for i, f := range t.FieldTypes {
			fields[i] = typeText(f)
		}
		return "tuple<" + strings.Join(fields, ", ") + ">"
	case *datatype.UserDefined:
		return t.Keyspace + "." + t.Name
	case *datatype.Custom:
		return "'" + t.ClassName + "'"
	default:
		return t.AsCql()
	}
}

// render formats a value so that different bytes differ. Invalid bytes are in
// hex with a "!".
func render(t datatype.DataType, b []byte) string {
	if b == nil {
		return "null"
	}
	text := t.Code() == primitive.DataTypeCodeVarchar || t.Code() == primitive.DataTypeCodeAscii
	if len(b) == 0 && !text {
		return "0x"
	}
	if s, ok := renderValue(t, b); ok {
		return s
	}
	return "!" + hex.EncodeToString(b)
}

func renderValue(t datatype.DataType, b []byte) (string, bool) {
	switch code := t.Code(); code {
	case primitive.DataTypeCodeVarchar, primitive.DataTypeCodeAscii:
		return "'" + strings.ReplaceAll(string(b), "'", "''") + "'", utf8.Valid(b)
	case primitive.DataTypeCodeBlob:
		return "0x" + hex.EncodeToString(b), true
	case primitive.DataTypeCodeBoolean:
		return strconv.FormatBool(b[0] == 1), len(b) == 1 && b[0] < 2
	case primitive.DataTypeCodeTinyint, primitive.DataTypeCodeSmallint, primitive.DataTypeCodeInt,
		primitive.DataTypeCodeBigint, primitive.DataTypeCodeCounter, primitive.DataTypeCodeTime, primitive.DataTypeCodeTimestamp:
		return renderInteger(code, b)
	case primitive.DataTypeCodeDate:
		if len(b) != 4 {
			return "", false
		}
		days := int64(binary.BigEndian.Uint32(b)) - 1<<31
		return time.Unix(days*86400, 0).UTC().Format(time.DateOnly), true
	case primitive.DataTypeCodeFloat:
		if len(b) != 4 {
			return "", false
		}
		return strconv.FormatFloat(float64(math.Float32frombits(binary.BigEndian.Uint32(b))), 'g', -1, 32), true
	case primitive.DataTypeCodeDouble:
		if len(b) != 8 {
			return "", false
		}
		return strconv.FormatFloat(math.Float64frombits(binary.BigEndian.Uint64(b)), 'g', -1, 64), true
	case primitive.DataTypeCodeUuid, primitive.DataTypeCodeTimeuuid:
		if len(b) != 16 {
			return "", false
		}
		h := hex.EncodeToString(b)
		return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-"), true
	case primitive.DataTypeCodeInet:
		a, ok := netip.AddrFromSlice(b)
		return a.String(), ok
	case primitive.DataTypeCodeVarint:
		return renderVarint(b), true
	case primitive.DataTypeCodeDecimal:
		if len(b) < 5 {
			return "", false
		}
		return renderVarint(b[4:]) + "/" + strconv.Itoa(int(int32(binary.BigEndian.Uint32(b)))), true
	case primitive.DataTypeCodeDuration:
		return "duration " + hex.EncodeToString(b), true
	default:
		return renderComposite(t, b)
	}
}

func renderInteger(code primitive.DataTypeCode, b []byte) (string, bool) {
	size := map[primitive.DataTypeCode]int{
		primitive.DataTypeCodeTinyint: 1, primitive.DataTypeCodeSmallint: 2, primitive.DataTypeCodeInt: 4,
	}[code]
	if size == 0 {
		size = 8
	}
	if len(b) != size {
		return "", false
	}
	n := int64(int8(b[0]))
	for _, c := range b[1:] {
		n = n<<8 | int64(c)
	}
	if code == primitive.DataTypeCodeTimestamp {
		return time.UnixMilli(n).UTC().Format("2006-01-02T15:04:05.000Z"), true
	}
	return strconv.FormatInt(n, 10), true
}

func renderVarint(b []byte) string {
	n := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	// The length distinguishes 00ff from 0000ff.
	if minimal, err := encodeVarint(n.String()); err != nil || len(minimal) != len(b) {
		return fmt.Sprintf("%v(%d bytes)", n, len(b))
	}
	return n.String()
}

func renderComposite(t datatype.DataType, b []byte) (string, bool) {
	switch t := t.(type) {
	case *datatype.List:
		elems, ok := cutElems(b, 1)
		return "[" + renderAll(elems, func(int) datatype.DataType { return t.ElementType }) + "]", ok
	case *datatype.Set:
		elems, ok := cutElems(b, 1)
		return "{" + renderAll(elems, func(int) datatype.DataType { return t.ElementType }) + "}", ok
	case *datatype.Map:
		elems, ok := cutElems(b, 2)
		var pairs []string
		for i := 0; i+1 < len(elems); i += 2 {
			pairs = append(pairs, render(t.KeyType, elems[i])+": "+render(t.ValueType, elems[i+1]))
		}
		return "{" + strings.Join(pairs, ", ") + "}", ok
	case *datatype.Tuple:
		fields, ok := cutAll(b)
		ok = ok && len(fields) <= len(t.FieldTypes)
		if !ok {
			return "", false
		}
		return "(" + renderAll(fields, func(i int) datatype.DataType { return t.FieldTypes[i] }) + ")", true
	case *datatype.UserDefined:
		fields, ok := cutAll(b)
		if !ok || len(fields) > len(t.FieldTypes) {
			return "", false
		}
		var parts []string
		for i, f := range fields {
			parts = append(parts, t.FieldNames[i]+": "+render(t.FieldTypes[i], f))
		}
		return "{" + strings.Join(parts, ", ") + "}", true
	}
	return "", false
}

func renderAll(elems [][]byte, typeOf func(int) datatype.DataType) string {
	parts := make([]string, len(elems))
	for i, e := range elems {
		parts[i] = render(typeOf(i), e)
	}
	return strings.Join(parts, ", ")
}

// cutElems reads a collection of n elements, per of them at a time.
func cutElems(b []byte, per int) ([][]byte, bool) {
	if len(b) < 4 {
		return nil, false
	}
	n := int(binary.BigEndian.Uint32(b)) * per
	elems, ok := cutAll(b[4:])
	return elems, ok && len(elems) == n
}

// cutAll reads [bytes] to the end.
func cutAll(b []byte) ([][]byte, bool) {
	var all [][]byte
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, false
		}
		n := int(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
		if n < 0 {
			all = append(all, nil)
			continue
		}
		if n > len(b) {
			return nil, false
		}
		all = append(all, b[:n:n])
		b = b[n:]
	}
	return all, true
}
