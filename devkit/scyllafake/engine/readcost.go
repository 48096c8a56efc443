package engine

import (
	"bytes"
	"slices"
	"sync/atomic"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// ReadCosts counts the rows of paged reads of named partitions: the rows that a real
// node reads and the rows that it returns. For each page a node reads up to a page of
// every partition that the statement names and that earlier pages did not end, of rows or of
// bytes, and discards the rest.
type ReadCosts struct{ read, returned atomic.Int64 }

// Rows returns the numbers of rows read and returned so far.
func (c *ReadCosts) Rows() (read, returned int64) { return c.read.Load(), c.returned.Load() }

// count adds one page, of which a node read so many rows.
func (c *ReadCosts) count(s *selection, read int64) {
	if c == nil || !s.src.byKey || s.pageSize == 0 {
		return
	}
	c.returned.Add(int64(s.n))
	c.read.Add(read)
}

// rowsRead returns how many rows a node reads for the page that was read last; more means
// that it was not the last one.
func (s *selection) rowsRead(more bool) (rows int64, err error) {
	if !s.src.byKey || s.pageSize == 0 {
		return s.read, nil
	}
	rows = int64(s.n)
	if !more {
		return rows, nil
	}
	after := s.src.position(&s.view)
	page := s.pageSize
	if len(s.rows) > 0 { // as many rows of this size as a page has bytes
		page = min(page, max(1, uint64(s.n)*maxPageBytes/uint64(len(s.rows))))
	}
	for i := s.src.nextKey - 1; i < len(s.src.keys); i++ {
		sc := store.Scan{Table: s.q.table, Key: s.src.keys[i], Token: s.q.table.Token(s.src.keys[i]), Ranges: s.src.ranges, Reverse: s.src.reversed}
		most := page
		if i == s.src.nextKey-1 {
			sc.After, most = &after, page-min(page, uint64(s.src.rows))
		}
		n, err := countRows(s.src.store, sc, most)
		if err != nil {
			return 0, err
		}
		rows += n
	}
	return rows, nil
}

// firstKey returns the index of the first partition of the page.
func (s *selection) firstKey() int {
	if s.src.after == nil {
		return 0
	}
	return max(0, slices.IndexFunc(s.src.keys, func(k []byte) bool { return bytes.Equal(k, s.src.after.Key) }))
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
