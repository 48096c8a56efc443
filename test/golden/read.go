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

func (r *reader) option() *cqltype.Type {
	if r.err != nil {
		return nil
	}
	t, rest, ok := cqltype.ReadOption(r.b)
	if !ok {
		r.err = fmt.Errorf("unreadable type %x", r.b[:min(len(r.b), 8)])
		return nil
	}
	r.b = rest
	return t
}
