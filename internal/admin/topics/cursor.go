package topics

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
)

// position is an offset for each partition.
type position map[int32]int64

// String returns the position as an opaque cursor, which is short: a page of the console
// has several in its address.
func (p position) String() string {
	var b []byte
	for _, partition := range slices.Sorted(maps.Keys(p)) {
		b = binary.AppendUvarint(b, uint64(partition)) // neither is negative
		b = binary.AppendUvarint(b, uint64(p[partition]))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePosition parses a cursor, empty for none.
func parsePosition(location, cursor string) (position, error) {
	if cursor == "" {
		return nil, nil //nolint:nilnil // none is no error
	}
	bad := invalid(location, "not a cursor of this API; start without a cursor")
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, bad
	}
	out := position{}
	for len(b) > 0 {
		partition, n := binary.Uvarint(b)
		if n <= 0 || partition > 1<<31-1 {
			return nil, bad
		}
		offset, m := binary.Uvarint(b[n:])
		if m <= 0 || offset > 1<<63-1 {
			return nil, bad
		}
		out[int32(partition)], b = int64(offset), b[n+m:]
	}
	return out, nil
}
