package store

import "github.com/scylla-outbox/scylla-outbox/internal/scyllafake/catalog"

// Position is a place in a table's token order, for paging: after the row
// with this clustering of this partition (or after the static row, or after
// the whole partition).
type Position struct {
	Token      int64
	Key        []byte
	Clustering [][]byte
	// Whole means after all rows of the partition. In a table without
	// clustering key it is implied.
	Whole bool
}

// Scan says what to read. Exactly one of Key and the token range is used.
type Scan struct {
	Table *catalog.Table
	// Key reads one partition.
	Key   []byte
	Token int64 // of Key
	// MinToken and MaxToken bound a token scan, both inclusive.
	MinToken, MaxToken int64
	// Ranges limits the rows of each partition; nil means all rows, an empty
	// non-nil slice none. Whatever their order, rows come in clustering order (or its
	// reverse) and once each.
	Ranges []Range
	// Reverse returns rows of a partition in reverse clustering order.
	Reverse bool
	// After resumes; nil begins at the start. The partition resumed in is
	// returned again only if it has a live row after that place.
	After *Position
}
