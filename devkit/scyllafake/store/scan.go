package store

import (
	"bytes"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
)

// Position is a position in a table's token order, for paging: after the row with this
// clustering of this partition (or after the static row, or after the whole partition).
type Position struct {
	Token      int64
	Key        []byte
	Clustering [][]byte
	// Whole means after all rows of the partition. In a table without
	// clustering key it is implied.
	Whole bool
}

// Scan defines a read. Exactly one of Key and the token range is used.
type Scan struct {
	Table *catalog.Table
	// Key reads one partition.
	Key   []byte
	Token int64 // of Key
	// MinToken and MaxToken bound a token scan, both inclusive.
	MinToken, MaxToken int64
	// Ranges limits the rows of each partition; nil means all rows, an empty non-nil
	// slice none. The ranges may have any order and overlap; each row is returned once,
	// in clustering order (or its reverse).
	Ranges []Range
	// Reverse returns rows of a partition in reverse clustering order.
	Reverse bool
	// After resumes; nil begins at the start. The partition of the position is returned
	// again only if it has a live row after it.
	After *Position
}

// resumption is the position at which a scan resumes.
type resumption struct {
	partition []byte // its part of the key
	ranges    []interval
}

// Scan starts a read. The caller must Close the iterator.
func (s *Store) Scan(sc Scan) (*Iter, error) {
	it := &Iter{s: s, reverse: sc.Reverse, single: sc.Key != nil}
	if err := it.plan(sc); err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	lower, upper := it.bounds(sc)
	if bytes.Compare(lower, upper) >= 0 || len(it.ranges) == 0 && len(sc.Table.Statics) == 0 {
		it.state = exhausted
	}
	pit, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	it.it = pit
	it.buffers = s.readers.Get().(*buffers)
	infos, now := s.columnInfos(sc.Table), s.unixNow()
	it.rows.columns, it.rows.now = infos, now
	it.statics.columns, it.statics.now = infos, now
	return it, nil
}

// plan computes the ranges of rows to read.
func (it *Iter) plan(sc Scan) error {
	it.ranges = []interval{wholePartition()}
	if sc.Ranges != nil {
		it.ranges = make([]interval, 0, len(sc.Ranges))
		for _, r := range sc.Ranges {
			iv, err := toInterval(sc.Table, r)
			if err != nil {
				return err
			}
			it.ranges = append(it.ranges, iv)
		}
		it.ranges = normalise(it.ranges)
	}
	if sc.After == nil {
		return nil
	}
	a := sc.After
	if len(a.Clustering) > len(sc.Table.Clustering) {
		return fmt.Errorf("position in %s.%s has %d clustering values, clustering key has %d",
			sc.Table.Keyspace, sc.Table.Name, len(a.Clustering), len(sc.Table.Clustering))
	}
	it.resumed = &resumption{partition: appendPartition(nil, sc.Table.StoreID, a.Token, a.Key)}
	if !a.Whole && len(sc.Table.Clustering) > 0 {
		it.resumed.ranges = it.after(appendClustering([]byte{kindRow}, sc.Table, a.Clustering), len(a.Clustering) == 0)
	}
	return nil
}

// after cuts the ranges to the part after a row.
func (it *Iter) after(row []byte, all bool) []interval {
	if all {
		return it.ranges
	}
	out := make([]interval, 0, len(it.ranges))
	beyond := successor(bytes.Clone(row))
	for _, iv := range it.ranges {
		if it.reverse {
			if bytes.Compare(iv.hi, row) > 0 {
				iv.hi = row
			}
		} else if bytes.Compare(iv.lo, beyond) < 0 {
			iv.lo = beyond
		}
		if !iv.empty() {
			out = append(out, iv)
		}
	}
	return out
}

// bounds returns the range of keys to read.
func (it *Iter) bounds(sc Scan) (lower, upper []byte) {
	id := sc.Table.StoreID
	if it.single {
		lower = appendPartition(nil, id, sc.Token, sc.Key)
		upper = append(bytes.Clone(lower), kindEnd)
	} else {
		lower = appendToken(appendTable(nil, id), sc.MinToken)
		if sc.MaxToken == math.MaxInt64 {
			upper = successor(appendTable(nil, id))
		} else {
			upper = appendToken(appendTable(nil, id), sc.MaxToken+1)
		}
	}
	if it.resumed == nil {
		return lower, upper
	}
	resume := it.resumed.partition
	if len(it.resumed.ranges) == 0 {
		resume = append(bytes.Clone(resume), kindEnd)
	}
	if bytes.Compare(resume, lower) > 0 {
		lower = resume
	}
	return lower, upper
}
