package outbox

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/gocql/gocql"
)

// headerMap is a frozen<map<text, text>> that marshals itself, sorted by key
// like on the server. gocql would use reflection for every entry.
type headerMap map[string]string

var errMapEncoding = errors.New("outbox: headers are not a map<text, text>")

// MarshalCQL encodes m as native protocol v4 does: a count, then keys and
// values, each with its length.
func (m headerMap) MarshalCQL(gocql.TypeInfo) ([]byte, error) {
	n := 4
	for k, v := range m {
		n += 8 + len(k) + len(v)
	}
	b := make([]byte, 0, n)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = appendText(b, k)
		b = appendText(b, m[k])
	}
	return b, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// UnmarshalCQL replaces m by the decoded map; null and empty give nil.
func (m *headerMap) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	*m = nil
	if len(data) == 0 {
		return nil
	}
	if len(data) < 4 {
		return errMapEncoding
	}
	n := binary.BigEndian.Uint32(data)
	data = data[4:]
	// Each entry has at least its two lengths: an impossible count must not
	// determine the allocation.
	if uint64(n)*8 > uint64(len(data)) {
		return errMapEncoding
	}
	out := make(headerMap, n)
	for range n {
		var k, v string
		var ok bool
		if k, data, ok = cutText(data); !ok {
			return errMapEncoding
		}
		if v, data, ok = cutText(data); !ok {
			return errMapEncoding
		}
		out[k] = v
	}
	if len(data) > 0 {
		return errMapEncoding
	}
	if n > 0 {
		*m = out
	}
	return nil
}

func cutText(b []byte) (s string, rest []byte, ok bool) {
	if len(b) < 4 {
		return "", nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(n) > uint64(len(b)) {
		return "", nil, false
	}
	return string(b[:n]), b[n:], true
}
