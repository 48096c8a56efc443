package verify

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/gocql/gocql"
)

// idSet is an exact set of event ids. It uses 16 bytes per id and at most an eighth of
// that for growth.
type idSet struct {
	parts [1024]idPart
	n     int
}

// idPart contains the ids of one hash. They are sorted at the first search.
type idPart struct {
	ids    []gocql.UUID
	sorted bool
}

func (s *idSet) part(id *gocql.UUID) *idPart {
	h := (binary.LittleEndian.Uint64(id[:8]) ^ binary.LittleEndian.Uint64(id[8:])*0x9e3779b97f4a7c15) * 0x9e3779b97f4a7c15
	return &s.parts[h>>54]
}

func (s *idSet) add(id gocql.UUID) {
	p := s.part(&id)
	if len(p.ids) == cap(p.ids) {
		more := make([]gocql.UUID, len(p.ids), len(p.ids)+64+len(p.ids)/8)
		copy(more, p.ids)
		p.ids = more
	}
	p.ids, p.sorted = append(p.ids, id), false
	s.n++
}

func (s *idSet) has(id gocql.UUID) bool {
	p := s.part(&id)
	compare := func(a, b gocql.UUID) int { return bytes.Compare(a[:], b[:]) }
	if !p.sorted {
		slices.SortFunc(p.ids, compare)
		p.sorted = true
	}
	_, ok := slices.BinarySearchFunc(p.ids, id, compare)
	return ok
}
