package store

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Apply writes mutations and private metadata as one unit and returns when they are
// visible and given to the operating system. The mutations are not retained.
//
// After an error nothing has been written, unless the disk failed: then the outcome is
// unknown until the store is opened again.
func (s *Store) Apply(muts []*Mutation, meta ...Meta) error {
	b := s.db.NewBatch()
	defer s.closeBatch(b)
	e := s.encoders.Get().(*encoder)
	defer s.encoders.Put(e)
	e.now = s.unixNow()
	for _, m := range muts {
		if err := e.mutation(b, m); err != nil {
			return err
		}
	}
	for _, m := range meta {
		if err := setMeta(b, m); err != nil {
			return err
		}
	}
	if b.Empty() {
		return nil
	}
	s.rewrite.RLock()
	defer s.rewrite.RUnlock()
	if err := s.guardWrite(func() error { return b.Commit(s.write) }); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

// closeBatch allows the batch to be used again, unless an abandoned write may use it.
func (s *Store) closeBatch(b *pebble.Batch) {
	if s.Err() == nil {
		_ = b.Close() // it always returns nil
	}
}

// encoder turns mutations into merge operands. Its buffers are reused.
type encoder struct {
	now        int64
	key, value []byte
	clustering []byte
	row        delta
	part       partitionRecord
}

func (e *encoder) mutation(b *pebble.Batch, m *Mutation) error {
	e.key = appendPartition(e.key[:0], m.Table.StoreID, m.Token, m.Key)
	prefix := len(e.key)

	if m.Deleted.Set || len(m.Ranges) > 0 {
		if err := e.partition(m); err != nil {
			return err
		}
		if !e.part.empty() {
			e.key = append(e.key, kindPartition)
			e.value = e.part.appendTo(e.value[:0])
			if err := b.Merge(e.key, e.value, nil); err != nil {
				return err
			}
		}
	}
	if m.Static != nil {
		e.key = append(e.key[:prefix], kindStatic)
		if err := e.mergeRow(b, m.Static, nil); err != nil {
			return err
		}
	}
	for i := range m.Rows {
		r := &m.Rows[i]
		if len(r.Clustering) != len(m.Table.Clustering) {
			return fmt.Errorf("apply: row of %s.%s has %d clustering values, want %d",
				m.Table.Keyspace, m.Table.Name, len(r.Clustering), len(m.Table.Clustering))
		}
		e.key = appendClustering(append(e.key[:prefix], kindRow), m.Table, r.Clustering)
		if err := e.mergeRow(b, r, r.Clustering); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) partition(m *Mutation) error {
	e.part.reset()
	e.part.deleted = m.Deleted.tomb(e.now)
	for _, r := range m.Ranges {
		if !r.Set {
			continue
		}
		iv, err := toInterval(m.Table, r.Range)
		if err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		e.part.segments = append(e.part.segments, segment{iv, r.Deletion.tomb(e.now)})
	}
	e.part.reconcile()
	return nil
}

func (e *encoder) mergeRow(b *pebble.Batch, r *Row, clustering [][]byte) error {
	e.clustering = e.row.setRow(r, clustering, e.now, e.clustering)
	if e.row.empty() {
		return nil
	}
	e.value = e.row.appendTo(e.value[:0])
	e.row.reset() // drops references to the caller's memory
	return b.Merge(e.key, e.value, nil)
}

// DropTable removes all data of a table, immediately and durably (TRUNCATE, DROP). Rows
// that an iterator already reads stay visible to it.
func (s *Store) DropTable(storeID uint32) error {
	lo := appendTable(nil, storeID)
	hi := successor(appendTable(nil, storeID))
	s.rewrite.RLock()
	defer s.rewrite.RUnlock()
	if err := s.guardWrite(func() error { return s.db.DeleteRange(lo, hi, s.write) }); err != nil {
		return fmt.Errorf("drop table %d: %w", storeID, err)
	}
	s.columns.Delete(storeID)
	return nil
}
