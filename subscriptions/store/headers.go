package store

import (
	"encoding/binary"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The encoding of headers keeps their order, repeated and empty names, bytes that are not
// UTF-8, and the difference between an empty value and none, which types of CQL do not:
// a byte 1, the number of headers, and for each the length of its name, the name, the
// length of its value plus 1 (0 without a value), and the value. Numbers are unsigned
// varints.
const headersVersion = 1

var errHeaders = errors.New("record_headers: not the encoding of this version")

func encodeHeaders(headers []kgo.RecordHeader) []byte {
	if len(headers) == 0 {
		return nil
	}
	out := binary.AppendUvarint([]byte{headersVersion}, uint64(len(headers)))
	for _, h := range headers {
		out = append(binary.AppendUvarint(out, uint64(len(h.Key))), h.Key...)
		if h.Value == nil {
			out = append(out, 0)
			continue
		}
		out = append(binary.AppendUvarint(out, uint64(len(h.Value))+1), h.Value...)
	}
	return out
}

func decodeHeaders(b []byte) ([]kgo.RecordHeader, error) {
	if len(b) == 0 {
		return nil, nil
	}
	ok := b[0] == headersVersion
	b = b[1:]
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			ok = false
			return 0
		}
		b = b[n:]
		return v
	}
	take := func(n uint64) []byte {
		if n > uint64(len(b)) {
			ok = false
			return nil
		}
		out := b[:n:n]
		b = b[n:]
		return out
	}
	var out []kgo.RecordHeader
	for n := number(); ok && n > 0; n-- {
		h := kgo.RecordHeader{Key: string(take(number()))}
		if size := number(); size > 0 {
			h.Value = take(size - 1)
		}
		out = append(out, h)
	}
	if !ok || len(b) > 0 {
		return nil, errHeaders
	}
	return out, nil
}
