package engine

import (
	"sync/atomic"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// ReadCosts counts the rows of paged reads of named partitions: the rows that a real
// node reads and the rows that it returns. For each page a node reads up to a page of
// every partition that the statement names and that earlier pages did not end, and
// discards the rest.
type ReadCosts struct{ read, returned atomic.Int64 }

// Rows returns the numbers of rows read and returned so far.
func (c *ReadCosts) Rows() (read, returned int64) { return c.read.Load(), c.returned.Load() }

// count adds one page; more means that it was not the last.
func (c *ReadCosts) count(s *selection, more bool) error {
	if c == nil || !s.src.byKey || s.pageSize == 0 {
		return nil
	}
	c.returned.Add(int64(s.n))
	c.read.Add(int64(s.n))
	if !more {
		return nil
	}
	after := s.src.position(&s.view)
	for i := s.src.nextKey - 1; i < len(s.src.keys); i++ {
		sc := store.Scan{Table: s.q.table, Key: s.src.keys[i], Token: s.q.table.Token(s.src.keys[i]), Ranges: s.src.ranges, Reverse: s.src.reversed}
		most := s.pageSize
		if i == s.src.nextKey-1 {
			sc.After, most = &after, s.pageSize-min(s.pageSize, uint64(s.src.rows))
		}
		n, err := countRows(s.src.store, sc, most)
		if err != nil {
			return err
		}
		c.read.Add(n)
	}
	return nil
}

// countRows returns the number of rows of a scan, at most most.
func countRows(st *store.Store, sc store.Scan, most uint64) (n int64, err error) {
	it, err := st.Scan(sc)
	if err != nil {
		return 0, serverError("read", err)
	}
	for uint64(n) < most && it.NextPartition() {
		for uint64(n) < most && it.NextRow() {
			n++
		}
	}
	if err := it.Err(); err != nil {
		return 0, serverError("read", err)
	}
	if err := it.Close(); err != nil {
		return 0, serverError("read", err)
	}
	return n, nil
}
