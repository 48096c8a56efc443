package engine

import (
	"bytes"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// source yields the rows that a SELECT reads: of named partitions in the order of their
// keys, or of a token range.
type source struct {
	store    *store.Store
	table    *catalog.Table
	byKey    bool
	keys     [][]byte      // if byKey
	lo, hi   int64         // otherwise
	ranges   []store.Range // nil is all rows
	reversed bool
	// onlyPartitions yields each partition once, without its rows.
	onlyPartitions bool
	after          *store.Position

	it      *store.Iter
	nextKey int
	open    bool // inside a partition
	rows    int  // yielded of this partition
	resumed bool // the partition was begun on an earlier page
	static  bool // the last row yielded was the static one

	// remember keeps the position of the last row after the end of its scan, when the
	// store has reclaimed the view's memory.
	remember bool
	yielded  bool // of this scan
	last     store.Position
}

// next moves view to the next row and reports whether it begins a partition. A
// partition with static columns only is one row, unless rows are restricted by their
// clustering key.
func (s *source) next(view *expr.RowView) (ok, first bool, err error) {
	for {
		if s.it == nil {
			if ok, err := s.openScan(); !ok || err != nil {
				return false, false, err
			}
		}
		if s.open {
			if !s.onlyPartitions && s.it.NextRow() {
				view.SetRow(s.it.Row())
				s.static, s.yielded = false, true
				s.rows++
				return true, s.rows == 1, nil
			}
			s.open = false
			if s.rows == 0 && !s.resumed && (s.onlyPartitions || s.ranges == nil && s.it.Static() != nil) && s.it.Err() == nil {
				view.SetRow(nil)
				s.static, s.yielded = true, true
				return true, true, nil
			}
		}
		if s.it.NextPartition() {
			key := s.it.Key()
			s.open, s.rows = true, 0
			s.resumed = s.after != nil && s.after.Token == s.it.Token() && bytes.Equal(s.after.Key, key)
			if err := view.StartPartition(key, s.it.Token(), s.it.Static()); err != nil {
				return false, false, serverError("read a partition key", err)
			}
			continue
		}
		if s.remember && s.yielded {
			s.last = s.position(view)
		}
		if err := s.close(); err != nil {
			return false, false, err
		}
		if !s.byKey {
			return false, false, nil
		}
	}
}

// openScan opens the next scan; ok is false when there is none.
func (s *source) openScan() (ok bool, err error) {
	sc := store.Scan{Table: s.table, Ranges: s.ranges, Reverse: s.reversed}
	if s.byKey {
		if s.nextKey == 0 && s.after != nil {
			s.nextKey = slices.IndexFunc(s.keys, func(k []byte) bool { return bytes.Equal(k, s.after.Key) })
			if s.nextKey < 0 {
				s.nextKey = len(s.keys)
			}
		}
		if s.nextKey >= len(s.keys) {
			return false, nil
		}
		sc.Key = s.keys[s.nextKey]
		sc.Token = s.table.Token(sc.Key)
		s.nextKey++
		if s.after != nil && bytes.Equal(sc.Key, s.after.Key) {
			if s.after.Whole {
				return s.openScan()
			}
			sc.After = s.after
		}
	} else {
		sc.MinToken, sc.MaxToken, sc.After = s.lo, s.hi, s.after
		if s.nextKey++; s.nextKey > 1 {
			return false, nil
		}
	}
	s.yielded = false
	if s.it, err = s.store.Scan(sc); err != nil {
		return false, serverError("read", err)
	}
	return true, nil
}

// position returns the position of the last row yielded; it shares no memory with the
// scan. After the end it is known only with remember.
func (s *source) position(v *expr.RowView) store.Position {
	if s.it == nil {
		return s.last
	}
	p := store.Position{Token: v.Token, Key: bytes.Clone(v.Key), Whole: s.static}
	if !s.static {
		for _, c := range v.Clustering {
			p.Clustering = append(p.Clustering, append([]byte{}, c...))
		}
		p.Whole = len(s.table.Clustering) == 0
	}
	return p
}

func (s *source) close() error {
	if s.it == nil {
		return nil
	}
	err := s.it.Err()
	if cerr := s.it.Close(); err == nil {
		err = cerr
	}
	s.it = nil
	s.open = false
	if err != nil {
		return serverError("read", err)
	}
	return nil
}
