package ddl

import (
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
)

// schemaRows collects the rows of system_schema and the private entries of a change.
// Its put methods write both for one object, in place of the previous ones; its remove
// methods delete both.
type schemaRows struct {
	next    *catalog.Schema // the schema after the change
	at      int64           // timestamp of the rows, µs
	release catalog.Version
	writes  []*store.Mutation
	metas   []store.Meta
}

func (w *schemaRows) insert(table string, vals system.Values) {
	w.writes = append(w.writes, system.Insert(w.next.Keyspaces["system_schema"].Tables[table], w.at, vals))
}

// erase deletes rows that older changes wrote; rows of this change stay.
func (w *schemaRows) erase(table string, vals system.Values) {
	w.writes = append(w.writes, system.Delete(w.next.Keyspaces["system_schema"].Tables[table], w.at-1, vals))
}

func (w *schemaRows) putKeyspace(ks *catalog.Keyspace) {
	w.keyspaceRows(ks)
	w.metas = append(w.metas, keyspaceMeta(ks))
}

func (w *schemaRows) keyspaceRows(ks *catalog.Keyspace) {
	w.insert("keyspaces", system.Values{
		"keyspace_name": ks.Name, "durable_writes": ks.DurableWrites, "replication": ks.Replication,
	})
	if ks.Tablets {
		w.insert("scylla_keyspaces", system.Values{"keyspace_name": ks.Name, "initial_tablets": int32(ks.InitialTablets)})
	}
}

func (w *schemaRows) removeKeyspace(name string) {
	for _, t := range w.next.Keyspaces["system_schema"].Tables {
		if t.PartitionKey[0].Name == "keyspace_name" {
			w.erase(t.Name, system.Values{"keyspace_name": name})
		}
	}
	w.metas = append(w.metas, gone(keyspaceKey(name)))
}

func (w *schemaRows) putTable(t *catalog.Table) {
	w.eraseTable(t)
	w.tableRows(t)
	w.metas = append(w.metas, tableMeta(t))
}

func (w *schemaRows) removeTable(t *catalog.Table) {
	w.eraseTable(t)
	w.metas = append(w.metas, gone(tableKey(t.Keyspace, t.Name)))
}

func (w *schemaRows) eraseTable(t *catalog.Table) {
	key := system.Values{"keyspace_name": t.Keyspace, "table_name": t.Name}
	for _, table := range []string{"tables", "scylla_tables", "columns", "dropped_columns"} {
		w.erase(table, key)
	}
}

func (w *schemaRows) tableRows(t *catalog.Table) {
	o := &t.Options
	var readRepair, localReadRepair any // null in newer releases
	if !w.release.HasTombstoneGC() {
		readRepair, localReadRepair = o.ReadRepair, o.DCLocalReadRepair
	}
	w.insert("tables", system.Values{
		"keyspace_name":               t.Keyspace,
		"table_name":                  t.Name,
		"flags":                       system.Set{[]byte("compound")},
		"bloom_filter_fp_chance":      o.BloomFilterFPChance,
		"caching":                     o.Caching,
		"comment":                     o.Comment,
		"compaction":                  o.Compaction,
		"compression":                 o.Compression,
		"crc_check_chance":            o.CRCCheckChance,
		"dclocal_read_repair_chance":  localReadRepair,
		"default_time_to_live":        o.DefaultTTL,
		"extensions":                  w.extensions(t),
		"gc_grace_seconds":            o.GCGraceSeconds,
		"id":                          t.ID,
		"max_index_interval":          o.MaxIndexInterval,
		"memtable_flush_period_in_ms": o.MemtableFlushPeriod,
		"min_index_interval":          o.MinIndexInterval,
		"read_repair_chance":          readRepair,
		"speculative_retry":           o.SpeculativeRetry,
	})
	w.scyllaRow(t)
	for _, c := range t.Columns() {
		w.insert("columns", columnRow(t, c, c.Type.String()))
	}
	for _, d := range t.Dropped {
		w.insert("dropped_columns", system.Values{
			"keyspace_name": t.Keyspace, "table_name": t.Name, "column_name": d.Name,
			// ScyllaDB writes microseconds into this column of milliseconds.
			"dropped_time": system.Timestamp(d.DroppedTime), "type": d.Type.String(),
		})
	}
}

// scyllaRow writes the row of scylla_tables, which newer releases have for every table
// and older ones for those with a partitioner.
func (w *schemaRows) scyllaRow(t *catalog.Table) {
	vals := system.Values{"keyspace_name": t.Keyspace, "table_name": t.Name}
	if t.Options.Partitioner != "" {
		vals["partitioner"] = t.Options.Partitioner
	}
	if w.release.HasCDCOnTablets() && t.Kind != catalog.System {
		vals["committed_by_group0"] = true
		vals["version"] = t.ID
		if t.Options.Tablets != nil {
			vals["tablets"] = t.Options.Tablets
		}
	}
	if len(vals) > 2 {
		w.insert("scylla_tables", vals)
	}
}

func columnRow(t *catalog.Table, c *catalog.Column, typ string) system.Values {
	return system.Values{
		"keyspace_name": t.Keyspace, "table_name": t.Name, "column_name": c.Name,
		"clustering_order": clusteringOrderName(c), "column_name_bytes": []byte(c.Name),
		"kind": columnKinds[c.Kind], "position": int32(c.Position), "type": typ,
	}
}

var columnKinds = map[catalog.ColumnKind]string{
	catalog.PartitionKey: "partition_key",
	catalog.Clustering:   "clustering",
	catalog.Static:       "static",
	catalog.Regular:      "regular",
}

func clusteringOrderName(c *catalog.Column) string {
	switch {
	case c.Kind != catalog.Clustering:
		return "NONE"
	case c.Desc:
		return "DESC"
	}
	return "ASC"
}

func (w *schemaRows) extensions(t *catalog.Table) map[string][]byte {
	m := map[string][]byte{}
	if t.CDC != nil {
		m["cdc"] = extension(cdcMap(t.CDC))
	}
	if w.release.HasTombstoneGC() && (t.Kind == catalog.Ordinary || t.Kind == catalog.CDCLog) {
		m["tombstone_gc"] = extension([][2]string{{"mode", "timeout"}, {"propagation_delay_in_seconds", "3600"}})
	}
	return m
}

// systemRows writes the rows of the system keyspaces and their tables.
func (w *schemaRows) systemRows() {
	for _, ks := range w.next.Keyspaces {
		if !isSystem(ks.Name) {
			continue
		}
		w.keyspaceRows(ks)
		for _, t := range ks.Tables {
			if t.Kind != catalog.System {
				continue
			}
			if t.PartitionKey == nil {
				panic(fmt.Sprintf("system table %s.%s has no key", ks.Name, t.Name))
			}
			w.eraseTable(t)
			w.tableRows(t)
		}
	}
}
