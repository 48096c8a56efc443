package compact

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/gocql/gocql"
)

// Set is an exact set of UUIDs. It uses 16 bytes per id and at most an eighth of that for
// growth. The zero value is empty.
type Set struct {
	parts [1024]part
	n     int
}

// part contains the ids of one hash. They are sorted at the first search.
type part struct {
	ids    []gocql.UUID
	sorted bool
}

func (s *Set) part(id *gocql.UUID) *part {
	h := (binary.LittleEndian.Uint64(id[:8]) ^ binary.LittleEndian.Uint64(id[8:])*0x9e3779b97f4a7c15) * 0x9e3779b97f4a7c15
	return &s.parts[h>>54]
}

// Len returns the number of ids that were added.
func (s *Set) Len() int { return s.n }

// Add adds an id that the set does not contain.
func (s *Set) Add(id gocql.UUID) {
	p := s.part(&id)
	if len(p.ids) == cap(p.ids) {
		more := make([]gocql.UUID, len(p.ids), len(p.ids)+64+len(p.ids)/8)
		copy(more, p.ids)
		p.ids = more
	}
	p.ids, p.sorted = append(p.ids, id), false
	s.n++
}

// Has reports whether the set contains an id.
func (s *Set) Has(id gocql.UUID) bool {
	p := s.part(&id)
	compare := func(a, b gocql.UUID) int { return bytes.Compare(a[:], b[:]) }
	if !p.sorted {
		slices.SortFunc(p.ids, compare)
		p.sorted = true
	}
	_, ok := slices.BinarySearchFunc(p.ids, id, compare)
	return ok
}
