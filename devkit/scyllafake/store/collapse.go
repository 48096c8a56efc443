package store

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// maxCollapse limits how many records one read writes back.
const maxCollapse = 16

// noteCrowded remembers that the iterator's current record took many operands to read.
func (it *Iter) noteCrowded() {
	if len(it.rewrite) < maxCollapse {
		it.rewrite = append(it.rewrite, bytes.Clone(it.it.Key()))
	}
}

// collapse writes a record back as one operand, so that the cost of a row that is
// updated and read repeatedly does not grow. The content of the record does not change.
func (s *Store) collapse(key []byte) error {
	s.rewrite.Lock()
	defer s.rewrite.Unlock()
	v, closer, err := s.db.Get(key)
	if err == pebble.ErrNotFound { // dropped concurrently
		return nil
	}
	if err != nil {
		return fmt.Errorf("collapse: %w", err)
	}
	defer closer.Close()
	if len(v) == 0 || v[0]&crowded == 0 {
		return nil
	}
	v = bytes.Clone(v)
	v[0] &^= crowded
	// Unsynced is enough: if the record is lost, the operands still exist.
	if err := s.guardWrite(func() error { return s.db.Set(key, v, pebble.NoSync) }); err != nil {
		return fmt.Errorf("collapse: %w", err)
	}
	s.rewrites.Add(1)
	return nil
}
