package engine

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// pageState is the position where a page ended and the rest of the limits.
type pageState struct {
	storeID uint32
	pos     store.Position
	// begin means that the page ended before its first row; there is no pos then.
	begin bool
	// remaining is the rest of LIMIT.
	remaining uint64
	// fetched is the number of rows already returned of the partition at pos.
	fetched uint64
}

var errPagingState = cqlerr.New(cqlerr.Protocol, "Invalid value for the paging state")

const pageStateVersion = 1

// encode returns the opaque bytes that the client sends back. The checksum only detects
// bytes that never were a state.
func (s *pageState) encode() []byte {
	b := []byte{pageStateVersion, 0}
	switch {
	case s.begin:
		b[1] = 2
	case s.pos.Whole:
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint32(b, s.storeID)
	b = binary.BigEndian.AppendUint64(b, uint64(s.pos.Token))
	b = binary.AppendUvarint(b, s.remaining)
	b = binary.AppendUvarint(b, s.fetched)
	b = appendBlob(b, s.pos.Key)
	b = binary.AppendUvarint(b, uint64(len(s.pos.Clustering)))
	for _, v := range s.pos.Clustering {
		b = appendBlob(b, v)
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func appendBlob(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// decodePageState decodes a state of any statement. same reports that it is of table t;
// a state of another table has no valid position.
func decodePageState(b []byte, t *catalog.Table) (s pageState, same bool, err error) {
	const head = 2 + 4 + 8
	if len(b) < head+4 || b[0] != pageStateVersion || b[1] > 2 {
		return s, false, errPagingState
	}
	body := b[:len(b)-4]
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(b[len(body):]) {
		return s, false, errPagingState
	}
	s.pos.Whole, s.begin = body[1] == 1, body[1] == 2
	s.storeID = binary.BigEndian.Uint32(body[2:])
	s.pos.Token = int64(binary.BigEndian.Uint64(body[6:]))
	r := stateReader{b: body[head:]}
	s.remaining = r.uvarint()
	s.fetched = r.uvarint()
	s.pos.Key = r.blob()
	n := r.uvarint()
	for range min(n, uint64(len(t.Clustering))) {
		s.pos.Clustering = append(s.pos.Clustering, r.blob())
	}
	if r.bad {
		return s, false, errPagingState
	}
	if s.storeID != t.StoreID {
		return s, false, nil
	}
	if !s.begin && !s.fits(t) {
		return s, false, errPagingState
	}
	return s, true, nil
}

// fits reports whether the position can be one of table t: the checksum is no secret,
// so a client could forge any.
func (s *pageState) fits(t *catalog.Table) bool {
	parts, err := t.DecodeKey(s.pos.Key, nil)
	if err != nil || s.pos.Token != t.Token(s.pos.Key) {
		return false
	}
	for i, c := range t.PartitionKey {
		if c.Type.Validate(parts[i]) != nil {
			return false
		}
	}
	if n := len(s.pos.Clustering); n != 0 && n != len(t.Clustering) || n == 0 && !s.pos.Whole {
		return false
	}
	for i, v := range s.pos.Clustering {
		if t.Clustering[i].Type.Validate(v) != nil {
			return false
		}
	}
	return true
}

type stateReader struct {
	b   []byte
	bad bool
}

func (r *stateReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *stateReader) blob() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}
