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
)

// value is a value to bind.
type value struct {
	name  string // with option names
	bytes []byte // nil is null
	unset bool
}

// cutValues parses (VALUE, …) at the beginning of text.
func cutValues(text string) (values []value, found bool, rest string, err error) {
	if !strings.HasPrefix(text, "(") {
		return nil, false, text, nil
	}
	list, rest, err := cutBrackets(text)
	if err != nil {
		return nil, false, "", err
	}
	for _, part := range splitList(list) {
		v, err := parseValue(part)
		if err != nil {
			return nil, false, "", err
		}
		values = append(values, v)
	}
	return values, true, strings.TrimLeft(rest, " \n"), nil
}

// cutBrackets splits "(a(b)) c" into "a(b)" and " c".
func cutBrackets(text string) (inner, rest string, err error) {
	depth := 0
	for i, c := range text {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			if depth--; depth == 0 {
				return text[1:i], text[i+1:], nil
			}
		}
	}
	return "", "", fmt.Errorf("a bracket is not closed: %s", text)
}

// splitList splits at the commas that are in no bracket.
func splitList(list string) []string {
	var parts []string
	depth, start := 0, 0
	for i, c := range list {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, strings.TrimSpace(list[start:i]))
				start = i + 1
			}
		}
	}
	if last := strings.TrimSpace(list[start:]); last != "" {
		parts = append(parts, last)
	}
	return parts
}

func parseValue(text string) (value, error) {
	var v value
	if name, rest, ok := strings.Cut(text, "="); ok && !strings.Contains(name, ":") {
		v.name, text = name, rest
	}
	switch text {
	case "null":
		return v, nil
	case "unset":
		v.unset = true
		return v, nil
	}
	typ, arg, ok := strings.Cut(text, ":")
	if !ok {
		return v, fmt.Errorf("not a value: %q", text)
	}
	var err error
	v.bytes, err = encode(typ, arg)
	if err != nil {
		return v, fmt.Errorf("value %q: %w", text, err)
	}
	return v, nil
}

// encode returns the bytes of a value of a type; never nil.
func encode(typ, arg string) ([]byte, error) {
	switch typ {
	case "raw", "blob":
		b, err := hex.DecodeString(arg)
		return append([]byte{}, b...), err
	case "text", "ascii", "varchar":
		return append([]byte{}, arg...), nil
	case "tinyint", "smallint", "int", "bigint", "counter", "time", "timestamp":
		n, err := strconv.ParseInt(arg, 10, 64)
		size := map[string]int{"tinyint": 1, "smallint": 2, "int": 4}[typ]
		if size == 0 {
			size = 8
		}
		return binary.BigEndian.AppendUint64(nil, uint64(n))[8-size:], err
	case "boolean":
		b, err := strconv.ParseBool(arg)
		if b {
			return []byte{1}, err
		}
		return []byte{0}, err
	case "float":
		f, err := strconv.ParseFloat(arg, 32)
		return binary.BigEndian.AppendUint32(nil, math.Float32bits(float32(f))), err
	case "double":
		f, err := strconv.ParseFloat(arg, 64)
		return binary.BigEndian.AppendUint64(nil, math.Float64bits(f)), err
	case "date":
		d, err := time.Parse(time.DateOnly, arg)
		return binary.BigEndian.AppendUint32(nil, uint32(d.Unix()/86400+1<<31)), err
	case "uuid", "timeuuid":
		return hex.DecodeString(strings.ReplaceAll(arg, "-", ""))
	case "inet":
		a, err := netip.ParseAddr(arg)
		return a.AsSlice(), err
	case "varint":
		return encodeVarint(arg)
	case "decimal":
		unscaled, scale, _ := strings.Cut(arg, "/")
		b, err := encodeVarint(unscaled)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(scale, 10, 32)
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), b...), err
	case "list", "set", "map":
		return encodeCollection(typ, arg)
	case "tuple":
		return encodeTuple(arg)
	}
	return nil, fmt.Errorf("unknown type")
}

func encodeVarint(arg string) ([]byte, error) {
	n, ok := new(big.Int).SetString(arg, 10)
	if !ok {
		return nil, fmt.Errorf("not a number")
	}
	if n.Sign() >= 0 {
		b := n.Bytes()
		if len(b) == 0 || b[0]&0x80 != 0 {
			b = append([]byte{0}, b...)
		}
		return b, nil
	}
	size := uint(n.BitLen()/8 + 1)
	b := new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), 8*size)).Bytes()
	if len(b) > 1 && b[0] == 0xff && b[1]&0x80 != 0 {
		b = b[1:]
	}
	return b, nil
}

func encodeElems(arg string) ([][]byte, error) {
	var elems [][]byte
	for _, part := range splitList(strings.TrimSuffix(strings.TrimPrefix(arg, "["), "]")) {
		v, err := parseValue(part)
		if err != nil {
			return nil, err
		}
		elems = append(elems, v.bytes)
	}
	return elems, nil
}

func encodeCollection(typ, arg string) ([]byte, error) {
	elems, err := encodeElems(arg)
	n := len(elems)
	if typ == "map" {
		n /= 2
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(n))
	for _, e := range elems {
		b = appendBytes(b, e)
	}
	return b, err
}

func encodeTuple(arg string) ([]byte, error) {
	elems, err := encodeElems(arg)
	b := []byte{}
	for _, e := range elems {
		b = appendBytes(b, e)
	}
	return b, err
}

// appendBytes appends a [bytes].
func appendBytes(b, v []byte) []byte {
	if v == nil {
		return binary.BigEndian.AppendUint32(b, math.MaxUint32)
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}
