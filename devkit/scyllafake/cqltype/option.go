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
	case Tuple:
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(t.Fields)))
		for _, f := range t.Fields {
			dst = AppendOption(dst, f)
		}
	}
	return dst
}
