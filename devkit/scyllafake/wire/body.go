package wire

import (
	"encoding/binary"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// body reads the parts of a request. It keeps the first error; after it every read
// returns the zero value.
type body struct {
	b   []byte
	err error
}

func (r *body) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// take returns the next n bytes. A negative n counts as a huge number, as in ScyllaDB.
func (r *body) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || len(r.b) < n {
		r.fail(cqlerr.New(cqlerr.Protocol, "truncated frame: expected %d bytes, length is %d", uint64(n), len(r.b)))
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *body) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *body) short() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *body) int() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *body) long() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *body) string() string     { return string(r.take(int(r.short()))) }
func (r *body) longString() string { return string(r.take(int(r.int()))) }
func (r *body) shortBytes() []byte { return r.take(int(r.short())) }

// bytes reads [bytes]; a negative length is nil.
func (r *body) bytes() []byte {
	n := r.int()
	if n < 0 {
		return nil
	}
	return r.take(int(n))
}

func (r *body) stringMap() map[string]string {
	n := r.short()
	out := make(map[string]string, min(int(n), 16))
	for range n {
		if r.err != nil {
			return nil
		}
		k := r.string()
		out[k] = r.string()
	}
	return out
}

// skipPayload skips a custom payload.
func (r *body) skipPayload() {
	for range r.short() {
		if r.err != nil {
			return
		}
		r.string()
		r.bytes()
	}
}
