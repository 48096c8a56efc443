// Package catalog defines the schema of a scyllafake node: keyspaces, tables, columns,
// and CDC options.
//
// A Schema is an immutable snapshot. Package ddl builds the next one and publishes it;
// readers keep the snapshot with which they began.
package catalog

import (
	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Schema is one version of the objects that DDL can change.
type Schema struct {
	Version   uuid.UUID
	Keyspaces map[string]*Keyspace
}

// Source has the current schema.
type Source interface {
	// Schema returns the current schema, which must not be changed. It is safe for
	// concurrent use.
	Schema() *Schema
}

// Keyspace is a keyspace and its objects.
type Keyspace struct {
	Name          string
	Replication   map[string]string // class is fully qualified
	DurableWrites bool
	// Tablets is true for a keyspace in tablets mode; InitialTablets is as configured.
	Tablets        bool
	InitialTablets int
	Tables         map[string]*Table `json:"-"` // CDC logs included
}

// ColumnKind is a column's role.
type ColumnKind uint8

// Column roles, in the order of SELECT *.
const (
	PartitionKey ColumnKind = iota
	Clustering
	Static
	Regular
)

// Column is one column of a table.
type Column struct {
	Name     string
	Type     *cqltype.Type
	Kind     ColumnKind
	Position int  // within its kind for key columns, -1 otherwise
	Desc     bool // clustering order
	// ID is the column's number in stored rows. It is never reused within the table, so
	// a column that is dropped and added again has no old values.
	ID int32
}

// TableKind distinguishes ordinary tables from tables that the server creates itself.
type TableKind uint8

// Kinds of tables.
const (
	Ordinary TableKind = iota
	CDCLog
	System // protected; rows are written by the server
	Paxos  // NAME$paxos, the state of conditional statements on table NAME
)

// Table is a table or a CDC log.
type Table struct {
	Keyspace, Name string
	ID             uuid.UUID
	// StoreID is the table's number in storage, never reused.
	StoreID uint32
	Kind    TableKind

	// PartitionKey and Clustering are in key order, Statics and Regulars by name.
	PartitionKey, Clustering, Statics, Regulars []*Column
	ByName                                      map[string]*Column `json:"-"`
	ByID                                        map[int32]*Column  `json:"-"` // live columns only
	NextColumnID                                int32

	Options Options
	CDC     *CDC // nil when the table has no cdc options at all
	Dropped []DroppedColumn
}

// Options are the table options, as system_schema.tables shows them.
type Options struct {
	Comment                       string
	DefaultTTL, GCGraceSeconds    int32
	BloomFilterFPChance           float64
	CRCCheckChance                float64
	DCLocalReadRepair, ReadRepair float64
	MinIndexInterval              int32
	MaxIndexInterval              int32
	MemtableFlushPeriod           int32
	SpeculativeRetry              string
	Caching, Compaction           map[string]string
	Compression                   map[string]string
	PaxosGraceSeconds             int32
	Partitioner                   string // "" or the CDC partitioner
	// Tablets are the hints of the option tablets; nil is none.
	Tablets map[string]string `json:",omitempty"`
}

// CDC is a table's cdc option map, parsed.
type CDC struct {
	Enabled    bool
	DeltaKeys  bool  // delta = 'keys'
	TTLSeconds int64 // 0 means none
}

// DroppedColumn is a row of system_schema.dropped_columns.
type DroppedColumn struct {
	Name        string
	Type        *cqltype.Type
	Kind        ColumnKind
	DroppedTime int64 // microseconds
}

// Columns returns all columns in the order of SELECT *.
func (t *Table) Columns() []*Column {
	out := make([]*Column, 0, len(t.PartitionKey)+len(t.Clustering)+len(t.Statics)+len(t.Regulars))
	out = append(out, t.PartitionKey...)
	out = append(out, t.Clustering...)
	out = append(out, t.Statics...)
	return append(out, t.Regulars...)
}

// Table finds a table; ok is false when keyspace or table does not exist.
func (s *Schema) Table(keyspace, name string) (t *Table, ok bool) {
	ks, ok := s.Keyspaces[keyspace]
	if !ok {
		return nil, false
	}
	t, ok = ks.Tables[name]
	return t, ok
}

// PaxosName returns the name of the table with the state of conditional statements on a
// table of a keyspace with tablets.
func PaxosName(table string) string { return table + "$paxos" }

// LacksPaxos reports whether t is a table of a keyspace with tablets beside which there is
// no table NAME$paxos.
func (s *Schema) LacksPaxos(t *Table) bool {
	ks := s.Keyspaces[t.Keyspace]
	if ks == nil || !ks.Tablets {
		return false
	}
	base := ks.Tables[t.Name]
	return base != nil && base.ID == t.ID && ks.Tables[PaxosName(t.Name)] == nil
}

// LogName returns the name of a table's CDC log.
func LogName(table string) string { return table + "_scylla_cdc_log" }
