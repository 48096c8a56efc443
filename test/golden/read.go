package golden

import (
	"encoding/binary"
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// reader decodes a frame's body. It keeps the first error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.b) {
		r.err = fmt.Errorf("body ends early: %d bytes wanted, %d left", n, len(r.b))
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) short() int {
	if b := r.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int() int {
	if b := r.take(4); b != nil {
		return int(int32(binary.BigEndian.Uint32(b)))
	}
	return 0
}

func (r *reader) string() string { return string(r.take(r.short())) }

func (r *reader) shortBytes() []byte { return r.take(r.short()) }

// bytes returns nil for length -1, null.
func (r *reader) bytes() []byte {
	n := r.int()
	if n == -1 {
		return nil
	}
	return r.take(n)
}

// value returns a bound value; null and unset are nil.
func (r *reader) value() []byte {
	n := r.int()
	if n < 0 {
		return nil
	}
	return r.take(n)
}

func (r *reader) strings() []string {
	var out []string
	for range r.short() {
		if r.err != nil {
			break
		}
		out = append(out, r.string())
	}
	return out
}

func (r *reader) multimap() map[string][]string {
	m := map[string][]string{}
	for range r.short() {
		if r.err != nil {
			break
		}
		k := r.string()
		m[k] = r.strings()
	}
	return m
}

// nativeTypes are the types without parameters by their kind; counter, which the server
// does not have, has the form of a bigint.
var nativeTypes = map[cqltype.Kind]*cqltype.Type{
	0x05: cqltype.TBigInt, 0x0a: cqltype.TText,
	cqltype.ASCII: cqltype.TASCII, cqltype.BigInt: cqltype.TBigInt, cqltype.Blob: cqltype.TBlob, cqltype.Boolean: cqltype.TBoolean,
	cqltype.Date: cqltype.TDate, cqltype.Decimal: cqltype.TDecimal, cqltype.Double: cqltype.TDouble, cqltype.Duration: cqltype.TDuration,
	cqltype.Float: cqltype.TFloat, cqltype.Inet: cqltype.TInet, cqltype.Int: cqltype.TInt, cqltype.SmallInt: cqltype.TSmallInt,
	cqltype.Varchar: cqltype.TText, cqltype.Time: cqltype.TTime, cqltype.Timestamp: cqltype.TTimestamp, cqltype.TimeUUID: cqltype.TTimeUUID,
	cqltype.TinyInt: cqltype.TTinyInt, cqltype.UUID: cqltype.TUUID, cqltype.Varint: cqltype.TVarint,
}

// userType is the kind of user-defined types, which the server does not have.
const userType = 0x30

// option reads the [option] that describes a type. A user-defined type is read as a
// tuple, which has the same values.
func (r *reader) option() *cqltype.Type {
	switch kind := cqltype.Kind(r.short()); kind {
	case cqltype.List, cqltype.Set:
		return &cqltype.Type{Kind: kind, Elem: r.option()}
	case cqltype.Map:
		key := r.option()
		return &cqltype.Type{Kind: kind, Key: key, Elem: r.option()}
	case cqltype.Tuple, userType:
		t := &cqltype.Type{Kind: cqltype.Tuple, Frozen: true}
		if kind == userType {
			r.string()
			r.string()
		}
		for range r.short() {
			if r.err != nil {
				break
			}
			if kind == userType {
				r.string()
			}
			t.Fields = append(t.Fields, r.option())
		}
		return t
	default:
		t := nativeTypes[kind]
		if t == nil && r.err == nil {
			r.err = fmt.Errorf("unknown type %#x", uint16(kind))
		}
		return t
	}
}
