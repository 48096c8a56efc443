// Package store keeps the rows of a scyllafake node in pebble: cells with
// timestamps, TTLs and tombstones, reconciled as ScyllaDB reconciles them.
//
// Writes are blind: Apply appends mutations and reads merge them. Everything
// given to one Apply becomes durable and visible as a whole or not at all.
package store

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/catalog"
)

// Deletion is a tombstone: everything with a timestamp at or below Timestamp
// is gone. The zero value (Timestamp 0 and Set false) deletes nothing.
type Deletion struct {
	Set       bool
	Timestamp int64 // microseconds
}

// Cell is one atomic value.
type Cell struct {
	Timestamp int64 // microseconds
	// TTL in seconds, 0 for none; Expiry is the Unix second at which a cell
	// with a TTL dies.
	TTL    int32
	Expiry int64
	Dead   bool   // a cell tombstone; Value is nil
	Value  []byte // never nil when live
}

// Element is one cell of a non-frozen collection or UDT. Path is the set
// element, the map key, the list's timeuuid, or the UDT's field index (2 bytes, big endian).
type Element struct {
	Path []byte
	Cell
}

// ColumnData is what one row holds, or one mutation changes, of one column.
type ColumnData struct {
	ID   int32
	Cell *Cell // atomic columns
	// Complex columns (Type.IsMultiCell): Deleted is the collection tombstone,
	// Elements are ordered by path.
	Deleted  Deletion
	Elements []Element
}

// Row is one row, as a mutation changes it or as a read found it.
type Row struct {
	// Clustering holds the serialised clustering values; it is ignored for the static row.
	Clustering [][]byte
	// Marker is the row marker that INSERT writes; nil if there is none.
	// Its Value is unused.
	Marker  *Cell
	Deleted Deletion
	Columns []ColumnData // by column ID
}

// Bound is one end of a clustering range: a prefix of clustering values.
// An empty Prefix with Inclusive is unbounded.
type Bound struct {
	Prefix    [][]byte
	Inclusive bool
}

// Range is a range of rows in clustering order (of the table: a DESC column's
// larger values come first).
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
	Rows    []Row
	Ranges  []RangeDeletion
}

// Options configure a Store.
type Options struct {
	// Dir is the data directory; empty keeps everything in memory.
	Dir string
	// Fsync makes every Apply wait for the disk. Without it an acknowledged
	// write survives the death of the process (it has reached the operating
	// system) but not that of the machine.
	Fsync bool
	// Now is the clock that TTLs are read against; nil means time.Now.
	Now func() time.Time
	// Logf receives pebble's own messages; nil discards them.
	Logf func(format string, args ...any)
}

// Position is a place in a table's token order, for paging: after the row
// with this clustering of this partition (or after the static row, or after
// the whole partition).
type Position struct {
	Token      int64
	Key        []byte
	Clustering [][]byte
	// Whole means after all rows of the partition.
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
	// Ranges limits the rows of each partition, in the order they are to be
	// returned and not overlapping; nil means all rows.
	Ranges []Range
	// Reverse returns rows of a partition in reverse clustering order.
	Reverse bool
	// After resumes; nil begins at the start.
	After *Position
}

// Store is an open database. It is safe for concurrent use.
type Store struct{}

// Open opens or creates a store.
func Open(o Options) (*Store, error) { panic("not written yet") }

// Close flushes and closes the store; no other call may be under way.
func (s *Store) Close() error { panic("not written yet") }

// Apply writes mutations and private metadata as one unit and returns when
// they are visible and durable (see Options.Fsync). The mutations are not retained.
func (s *Store) Apply(muts []*Mutation, meta ...Meta) error { panic("not written yet") }

// Meta is an entry of the store's private key space (catalog, generations, …);
// a nil Value deletes it.
type Meta struct {
	Key   string
	Value []byte
}

// Metas returns the private entries whose key begins with prefix, in key order.
func (s *Store) Metas(prefix string) ([]Meta, error) { panic("not written yet") }

// DropTable removes all data of a table, at once and durably (TRUNCATE, DROP).
func (s *Store) DropTable(storeID uint32) error { panic("not written yet") }

// Iter walks partitions in token order and, within each, live rows in
// clustering order, as of one instant: later writes do not show. What is
// deleted, shadowed or expired is not returned; a row without a live marker,
// cell or collection element does not exist. Use: for it.NextPartition() { it.Static(); for it.NextRow() { it.Row() } }.
// Not every row of a partition need be read. Not safe for concurrent use.
type Iter struct{}

// Scan starts a read. The caller must Close the iterator.
func (s *Store) Scan(sc Scan) (*Iter, error) { panic("not written yet") }

// NextPartition moves to the next partition that has any live static or
// clustering row (within the scan's ranges, for rows; a partition whose only live data
// is its static row is returned too) and reports whether there is one.
func (it *Iter) NextPartition() bool { panic("not written yet") }

// Token and Key identify the current partition; valid until the next NextPartition.
func (it *Iter) Token() int64 { panic("not written yet") }

// Key is the serialised partition key.
func (it *Iter) Key() []byte { panic("not written yet") }

// Static is the live static row, or nil. It stays valid until the next NextPartition.
func (it *Iter) Static() *Row { panic("not written yet") }

// NextRow moves to the next live row of the partition. A table without
// clustering key has at most one row per partition.
func (it *Iter) NextRow() bool { panic("not written yet") }

// Row is the current row. The row and what it points to are valid until the
// next NextRow or NextPartition; copy what must live longer.
func (it *Iter) Row() *Row { panic("not written yet") }

// Err is the first error met.
func (it *Iter) Err() error { panic("not written yet") }

// Close releases the iterator.
func (it *Iter) Close() error { panic("not written yet") }
