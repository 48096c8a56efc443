package store

import "fmt"

// DropTable removes all data of a table, immediately and durably (TRUNCATE, DROP). Rows
// that an iterator already reads stay visible to it.
func (s *Store) DropTable(storeID uint32) error {
	lo := appendTable(nil, storeID)
	hi := successor(appendTable(nil, storeID))
	s.rewrite.RLock()
	defer s.rewrite.RUnlock()
	if err := s.guarded(func() error { return s.db.DeleteRange(lo, hi, s.write) }); err != nil {
		return fmt.Errorf("drop table %d: %w", storeID, err)
	}
	s.columns.Delete(storeID)
	return nil
}
