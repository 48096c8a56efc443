package cqltype

import (
	"encoding/hex"
	"errors"
	"unicode/utf8"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// ErrNullElement means that a collection contains a null. BindError returns it
// unchanged, without the name of the column, as ScyllaDB does.
var ErrNullElement error = cqlerr.Invalidf("null is not supported inside collections")

func marshalErrorf(format string, args ...any) error {
	return cqlerr.Invalidf("marshaling error: "+format, args...)
}

// BindError returns the error for a bound value of the named column that Validate
// refused with err.
func BindError(column string, err error) error {
	var e *cqlerr.Error
	if err == ErrNullElement || !errors.As(err, &e) {
		return err
	}
	return cqlerr.New(e.Code, "Exception while binding column %s: %s", column, e.Message)
}

// Validate checks that v is a well-formed value of t. Null is valid, and so is an empty
// value of every type but duration and the collections. Errors are *cqlerr.Error with
// ScyllaDB's text, which begins "marshaling error: ".
func (t *Type) Validate(v []byte) error {
	if v == nil {
		return nil
	}
	if len(v) == 0 && t.Kind != Duration && !t.IsCollection() {
		return nil
	}
	n := len(v)
	if k := kinds[t.Kind]; k.size > 0 && n != k.size {
		return marshalErrorf(k.badSize, n)
	}
	switch t.Kind {
	case ASCII:
		for _, c := range v {
			if c >= 0x80 {
				return marshalErrorf("Validation failed - non-ASCII character in an ASCII string")
			}
		}
	case Varchar:
		return validateUTF8(v)
	case TimeUUID:
		if version := v[6] >> 4; version != 1 {
			return marshalErrorf("Unsupported UUID version (%d)", version)
		}
	case Inet:
		if n != 4 && n != 16 {
			return marshalErrorf("Validation failed for inet_addr - got %d bytes", n)
		}
	case Duration:
		return validateDuration(v)
	case List, Set, Map:
		return t.validateCollection(v)
	case Tuple:
		return t.validateTuple(v)
	}
	return nil
}

func validateUTF8(v []byte) error {
	if utf8.Valid(v) {
		return nil
	}
	for i := 0; i < len(v); {
		r, size := utf8.DecodeRune(v[i:])
		if r == utf8.RuneError && size == 1 {
			return marshalErrorf("Validation failed - non-UTF8 character in a UTF8 string, at byte offset %d", i)
		}
		i += size
	}
	return nil
}

func notEnough(want, got int) error {
	return marshalErrorf("read_simple - not enough bytes (expected %d, got %d)", want, got)
}

// element reads one element strictly.
func element(b []byte) (v, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, notEnough(4, len(b))
	}
	v, rest, ok := readElement(b)
	if !ok {
		want := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
		return nil, nil, marshalErrorf("read_simple_bytes - not enough bytes (requested %d, got %d)", want, len(b)-4)
	}
	return v, rest, nil
}

func (t *Type) validateCollection(v []byte) error {
	if len(v) < 4 {
		return notEnough(4, len(v))
	}
	n, per := Count(v), 1
	if t.Kind == Map {
		per = 2
	}
	rest := v[4:]
	for i := range n * per {
		e, r, err := element(rest)
		if err != nil {
			return err
		}
		if e == nil {
			return ErrNullElement
		}
		of := t.Elem
		if per == 2 && i%2 == 0 {
			of = t.Key
		}
		if err := of.Validate(e); err != nil {
			return err
		}
		rest = r
	}
	if t.Kind == List && len(rest) > 0 {
		return marshalErrorf("Validation failed for type %s: bytes remaining after reading all %d elements of the list -> [%s]",
			t.MarshalName(), n, hex.EncodeToString(rest))
	}
	return nil
}

func (t *Type) validateTuple(v []byte) error {
	n := 0
	for ; len(v) > 0; n++ {
		e, rest, err := element(v)
		if err != nil {
			return err
		}
		if n < len(t.Fields) {
			if err := t.Fields[n].Validate(e); err != nil {
				return err
			}
		}
		v = rest
	}
	if n > len(t.Fields) {
		return marshalErrorf("Value of type %s contained too many fields (expected %d, got %d)",
			t.MarshalName(), len(t.Fields), n)
	}
	return nil
}
