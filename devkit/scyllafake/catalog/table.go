package catalog

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// NewTable returns a table without columns and with the default options of CREATE
// TABLE.
func NewTable(keyspace, name string) *Table {
	return &Table{
		Keyspace: keyspace,
		Name:     name,
		ByName:   map[string]*Column{},
		ByID:     map[int32]*Column{},
		Options:  DefaultOptions(),
	}
}

// DefaultOptions returns the options of a table whose CREATE TABLE sets none (ScyllaDB
// schema.hh).
func DefaultOptions() Options {
	return Options{
		BloomFilterFPChance: 0.01,
		CRCCheckChance:      1,
		GCGraceSeconds:      864000,
		MinIndexInterval:    128,
		MaxIndexInterval:    2048,
		SpeculativeRetry:    "99.0PERCENTILE",
		PaxosGraceSeconds:   864000,
		Caching:             map[string]string{"keys": "ALL", "rows_per_partition": "ALL"},
		Compaction:          map[string]string{"class": "SizeTieredCompactionStrategy"},
		Compression:         map[string]string{"sstable_compression": "org.apache.cassandra.io.compress.LZ4Compressor"},
	}
}

// UnmarshalJSON reads a table as JSON has it.
func (t *Table) UnmarshalJSON(b []byte) error {
	type plain Table
	if err := json.Unmarshal(b, (*plain)(t)); err != nil {
		return err
	}
	t.ByName, t.ByID = map[string]*Column{}, map[int32]*Column{}
	for _, c := range t.Columns() {
		t.ByName[c.Name], t.ByID[c.ID] = c, c
	}
	return nil
}

// Add adds a column and gives it the next ID. Key columns are appended to their key,
// others are inserted in order of name. The caller has checked that the name is free.
func (t *Table) Add(c Column) *Column {
	c.ID = t.NextColumnID
	t.NextColumnID++
	col := &c
	switch c.Kind {
	case PartitionKey:
		col.Position = len(t.PartitionKey)
		t.PartitionKey = append(t.PartitionKey, col)
	case Clustering:
		col.Position = len(t.Clustering)
		t.Clustering = append(t.Clustering, col)
	case Static:
		col.Position = -1
		t.Statics = insertByName(t.Statics, col)
	case Regular:
		col.Position = -1
		t.Regulars = insertByName(t.Regulars, col)
	}
	t.ByName[col.Name] = col
	t.ByID[col.ID] = col
	return col
}

func insertByName(cols []*Column, c *Column) []*Column {
	i, _ := slices.BinarySearchFunc(cols, c, func(a, b *Column) int { return strings.Compare(a.Name, b.Name) })
	return slices.Insert(cols, i, c)
}

// Remove removes a static or regular column.
func (t *Table) Remove(name string) {
	c := t.ByName[name]
	if c == nil {
		return
	}
	same := func(o *Column) bool { return o == c }
	t.Statics = slices.DeleteFunc(t.Statics, same)
	t.Regulars = slices.DeleteFunc(t.Regulars, same)
	delete(t.ByName, name)
	delete(t.ByID, c.ID)
}

// Clone returns a copy whose columns and options may be changed. Types are
// shared; they are immutable.
func (t *Table) Clone() *Table {
	n := *t
	n.ByName = make(map[string]*Column, len(t.ByName))
	n.ByID = make(map[int32]*Column, len(t.ByID))
	clone := func(cols []*Column) []*Column {
		out := make([]*Column, len(cols))
		for i, c := range cols {
			cc := *c
			out[i] = &cc
			n.ByName[cc.Name] = &cc
			n.ByID[cc.ID] = &cc
		}
		return out
	}
	n.PartitionKey = clone(t.PartitionKey)
	n.Clustering = clone(t.Clustering)
	n.Statics = clone(t.Statics)
	n.Regulars = clone(t.Regulars)
	n.Options.Caching = maps.Clone(t.Options.Caching)
	n.Options.Compaction = maps.Clone(t.Options.Compaction)
	n.Options.Compression = maps.Clone(t.Options.Compression)
	n.Options.Tablets = maps.Clone(t.Options.Tablets)
	if t.CDC != nil {
		c := *t.CDC
		n.CDC = &c
	}
	n.Dropped = slices.Clone(t.Dropped)
	return &n
}

// Clone returns a copy of the schema whose keyspaces may be replaced.
func (s *Schema) Clone() *Schema {
	return &Schema{Version: s.Version, Keyspaces: maps.Clone(s.Keyspaces)}
}

// Clone returns a copy of the keyspace whose tables may be replaced.
func (k *Keyspace) Clone() *Keyspace {
	n := *k
	n.Replication = maps.Clone(k.Replication)
	n.Tables = maps.Clone(k.Tables)
	return &n
}
