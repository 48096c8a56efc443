package store

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// maxCollapse bounds how many records one read writes back.
const maxCollapse = 16

// noteCrowded remembers that the record the iterator stands on took many
// operands to read.
func (it *Iter) noteCrowded() {
	if len(it.rewrite) < maxCollapse {
		it.rewrite = append(it.rewrite, bytes.Clone(it.it.Key()))
	}
}

// collapse writes a record back as one, so that a row that is updated and
// read over and over costs no more the longer it goes on. What the record
// says stays the same.
func (s *Store) collapse(key []byte) error {
	s.rewrite.Lock()
	defer s.rewrite.Unlock()
	v, closer, err := s.db.Get(key)
	if err == pebble.ErrNotFound { // dropped meanwhile
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
	// Unsynced is enough: should it be lost, the operands are still there.
	if err := s.guarded(func() error { return s.db.Set(key, v, pebble.NoSync) }); err != nil {
		return fmt.Errorf("collapse: %w", err)
	}
	s.rewrites.Add(1)
	return nil
}
