package cqltype

import "encoding/binary"

// AppendOption appends t as the [option] that describes it in result and
// prepared metadata of protocol v4.
func AppendOption(dst []byte, t *Type) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(t.Kind))
	switch t.Kind {
	case List, Set:
		dst = AppendOption(dst, t.Elem)
	case Map:
		dst = AppendOption(AppendOption(dst, t.Key), t.Elem)
	case UDT:
		dst = appendString(appendString(dst, t.Keyspace), t.Name)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(t.Fields)))
		for _, f := range t.Fields {
			dst = AppendOption(appendString(dst, f.Name), f.Type)
		}
	case Tuple:
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(t.Fields)))
		for _, f := range t.Fields {
			dst = AppendOption(dst, f.Type)
		}
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

// ReadOption parses an [option] and returns the bytes after it. ok is false when b ends
// early or contains an unknown kind.
func ReadOption(b []byte) (t *Type, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	kind := Kind(binary.BigEndian.Uint16(b))
	b = b[2:]
	switch kind {
	case List, Set:
		elem, b, ok := ReadOption(b)
		return &Type{Kind: kind, Elem: elem}, b, ok
	case Map:
		key, b, ok := ReadOption(b)
		if !ok {
			return nil, nil, false
		}
		elem, b, ok := ReadOption(b)
		return &Type{Kind: kind, Key: key, Elem: elem}, b, ok
	case UDT, Tuple:
		t = &Type{Kind: kind, Frozen: kind == Tuple}
		if kind == UDT {
			if t.Keyspace, b, ok = readString(b); !ok {
				return nil, nil, false
			}
			if t.Name, b, ok = readString(b); !ok {
				return nil, nil, false
			}
		}
		if len(b) < 2 {
			return nil, nil, false
		}
		n := int(binary.BigEndian.Uint16(b))
		b = b[2:]
		for range n {
			var f Field
			if kind == UDT {
				if f.Name, b, ok = readString(b); !ok {
					return nil, nil, false
				}
			}
			if f.Type, b, ok = ReadOption(b); !ok {
				return nil, nil, false
			}
			t.Fields = append(t.Fields, f)
		}
		return t, b, true
	}
	if kind == 0x000A { // text, which old servers send for varchar
		kind = Varchar
	}
	name, known := kindNames[kind]
	if !known {
		return nil, nil, false
	}
	return primitives[name], b, true
}

func readString(b []byte) (s string, rest []byte, ok bool) {
	if len(b) < 2 {
		return "", nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if len(b) < 2+n {
		return "", nil, false
	}
	return string(b[2 : 2+n]), b[2+n:], true
}
