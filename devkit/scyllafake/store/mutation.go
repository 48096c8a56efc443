package store

import "github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"

// Bound is one end of a clustering range: a prefix of clustering values.
// An empty Prefix with Inclusive is unbounded.
type Bound struct {
	Prefix    [][]byte
	Inclusive bool
}

// Range is a range of rows in clustering order (of the table: a DESC column's larger
// values come first). A prefix shorter than the clustering key denotes all rows that
// begin with it: an inclusive bound includes them, an exclusive one excludes them.
type Range struct{ Start, End Bound }

// RangeDeletion deletes a range of rows.
type RangeDeletion struct {
	Range
	Deletion
}

// Mutation changes one partition.
type Mutation struct {
	Table *catalog.Table
	// Key is the serialised partition key: the value itself for one column,
	// the composite form (length, value, 0 for each) for several.
	Key     []byte
	Token   int64
	Deleted Deletion
	Static  *Row
	// Rows may come in any order, and a row more than once.
	Rows   []Row
	Ranges []RangeDeletion
}
