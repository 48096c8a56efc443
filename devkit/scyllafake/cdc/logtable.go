package cdc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Ident contains the ids of a new log, which cannot be derived from its base.
type Ident struct {
	ID      uuid.UUID
	StoreID uint32
}

// LogTable returns the log of the current base.
//
// existing is the current log, attached or left over from before CDC was turned off, or
// nil. The new version keeps its ids, its columns as far as the base still has them,
// and its indexes. Other columns of the log become dropped columns, with dropTime (µs).
// ident is used only when existing is nil. Neither table is changed.
//
// The error is a *cqlerr.Error: a base column must not have the name of one of the
// log's own. (A real node accepts such a name and aborts.)
func LogTable(base, existing *catalog.Table, ident Ident, dropTime int64) (*catalog.Table, error) {
	log := &catalog.Table{
		Keyspace: base.Keyspace,
		Name:     catalog.LogName(base.Name),
		ID:       ident.ID,
		StoreID:  ident.StoreID,
		Kind:     catalog.CDCLog,
		Options:  logOptions(base),
	}
	b := logBuilder{log: log, old: existing, byName: make(map[string]*catalog.Column)}
	if existing != nil {
		log.ID, log.StoreID = existing.ID, existing.StoreID
		log.NextColumnID = existing.NextColumnID
		log.Dropped = slices.Clone(existing.Dropped)
	}

	b.add(ColStreamID, cqltype.TBlob, catalog.PartitionKey, 0)
	b.add(ColTime, cqltype.TTimeUUID, catalog.Clustering, 0)
	b.add(ColBatchSeqNo, cqltype.TInt, catalog.Clustering, 1)
	b.regular(ColEndOfBatch, cqltype.TBoolean)
	b.regular(ColOperation, cqltype.TTinyInt)
	b.regular(ColTTL, cqltype.TBigInt)
	for _, c := range base.Columns() {
		if err := checkName(base, c.Name); err != nil {
			return nil, err
		}
		if c.Kind == catalog.PartitionKey || c.Kind == catalog.Clustering {
			b.regular(c.Name, c.Type)
			continue
		}
		b.regular(c.Name, logType(c.Type))
		b.regular(prefixDeleted+c.Name, cqltype.TBoolean)
		if c.Type.IsMultiCell() {
			b.regular(prefixElements+c.Name, cqltype.NewSet(elementKey(c.Type)).Freeze())
		}
	}
	b.finish(dropTime)
	return log, nil
}

// checkName refuses the names that abort a real node.
func checkName(base *catalog.Table, name string) error {
	switch name {
	case ColStreamID, ColTime, ColBatchSeqNo, ColOperation, ColTTL, ColEndOfBatch:
		return cqlerr.Unsupported(fmt.Sprintf("a column named %q in %s.%s, a table with CDC (it aborts a ScyllaDB node)",
			name, base.Keyspace, base.Name))
	}
	return nil
}

// logBuilder collects a log's columns.
type logBuilder struct {
	log, old *catalog.Table
	byName   map[string]*catalog.Column
	added    []*catalog.Column // in the order in which rows are built
}

func (b *logBuilder) regular(name string, t *cqltype.Type) { b.add(name, t, catalog.Regular, -1) }

// add sets a column. Of a name that comes twice (a base column called like the
// deleted-column of another) the last one counts, as in ScyllaDB.
func (b *logBuilder) add(name string, t *cqltype.Type, kind catalog.ColumnKind, pos int) {
	c := &catalog.Column{Name: name, Type: t, Kind: kind, Position: pos, ID: -1}
	b.byName[name] = c
	b.added = append(b.added, c)
}

// finish numbers the columns, sorts them into the table and records the columns that
// only the old version had.
func (b *logBuilder) finish(dropTime int64) {
	log := b.log
	if b.old != nil {
		for name, c := range b.byName {
			if was, ok := b.old.ByName[name]; ok && was.Type.Equal(c.Type) {
				c.ID = was.ID
			}
		}
		for _, was := range b.old.Columns() {
			if _, ok := b.byName[was.Name]; !ok {
				log.Dropped = withDropped(log.Dropped, catalog.DroppedColumn{
					Name: was.Name, Type: was.Type, Kind: was.Kind, DroppedTime: dropTime,
				})
			}
		}
	}
	for _, c := range b.added {
		if c.ID < 0 && b.byName[c.Name] == c {
			c.ID = log.NextColumnID
			log.NextColumnID++
		}
	}
	cols := slices.SortedFunc(maps.Values(b.byName), func(a, c *catalog.Column) int {
		return cmp.Or(cmp.Compare(a.Kind, c.Kind), cmp.Compare(a.Position, c.Position), cmp.Compare(a.Name, c.Name))
	})
	log.ByName = b.byName
	log.ByID = make(map[int32]*catalog.Column, len(cols))
	for _, c := range cols {
		log.ByID[c.ID] = c
		switch c.Kind {
		case catalog.PartitionKey:
			log.PartitionKey = append(log.PartitionKey, c)
		case catalog.Clustering:
			log.Clustering = append(log.Clustering, c)
		default:
			log.Regulars = append(log.Regulars, c)
		}
	}
}

// withDropped records d; of two drops of one name the later one counts.
func withDropped(list []catalog.DroppedColumn, d catalog.DroppedColumn) []catalog.DroppedColumn {
	list = slices.DeleteFunc(list, func(o catalog.DroppedColumn) bool { return o.Name == d.Name })
	return append(list, d)
}

// logOptions returns the table options of base's log. With a TTL the log's compaction
// makes at most 24 windows of it and tombstones need not be kept.
func logOptions(base *catalog.Table) catalog.Options {
	o := catalog.DefaultOptions()
	o.Comment = fmt.Sprintf("CDC log for %s.%s", base.Keyspace, base.Name)
	o.Caching = map[string]string{"enabled": "false", "keys": "NONE", "rows_per_partition": "NONE"}
	o.Compaction = map[string]string{"class": "TimeWindowCompactionStrategy"}
	o.Partitioner = catalog.CDCPartitioner
	if base.CDC == nil || base.CDC.TTLSeconds <= 0 {
		return o
	}
	window := ceilDiv(base.CDC.TTLSeconds, 24) // seconds
	o.GCGraceSeconds = 0
	o.Compaction["compaction_window_unit"] = "MINUTES"
	o.Compaction["compaction_window_size"] = strconv.FormatInt(ceilDiv(window, 60), 10)
	o.Compaction["expired_sstable_check_frequency_seconds"] = strconv.FormatInt(max(1, window/2), 10)
	return o
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// logType returns the type in which the log stores values of a base column: frozen, and
// a list as a map from the elements' time ids, so that it can contain a part of it.
func logType(t *cqltype.Type) *cqltype.Type {
	if !t.IsMultiCell() {
		return t
	}
	if t.Kind == cqltype.List {
		return cqltype.NewMap(cqltype.TTimeUUID, t.Elem).Freeze()
	}
	return t.Freeze()
}

// elementKey returns the type that identifies one element of a multi-cell value.
func elementKey(t *cqltype.Type) *cqltype.Type {
	switch t.Kind {
	case cqltype.Map:
		return t.Key
	case cqltype.Set:
		return t.Elem
	}
	return cqltype.TTimeUUID
}
