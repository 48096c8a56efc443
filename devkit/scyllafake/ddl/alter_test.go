package ddl

import (
	"fmt"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// table returns a table of keyspace ks.
func (b *fixture) table(name string) *catalog.Table {
	b.t.Helper()
	t := b.Schema().Keyspaces["ks"].Tables[name]
	if t == nil {
		b.t.Fatalf("there is no table ks.%s", name)
	}
	return t
}

// Every property of a table is set by CREATE and by ALTER, and an omitted one is kept.
func TestOptions(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS, "CREATE TABLE ks.t (k int PRIMARY KEY) WITH comment = 'kept'")
	text := func(m map[string]string) string { return fmt.Sprint(m) } // in the order of its keys
	for i, tt := range []struct {
		with string
		got  func(catalog.Options) any
		want any
	}{
		{"comment = 'it''s'", func(o catalog.Options) any { return o.Comment }, "it's"},
		{"speculative_retry = '99.0PERCENTILE'", func(o catalog.Options) any { return o.SpeculativeRetry }, "99.0PERCENTILE"},
		{"default_time_to_live = 60", func(o catalog.Options) any { return o.DefaultTTL }, int32(60)},
		{"gc_grace_seconds = 0", func(o catalog.Options) any { return o.GCGraceSeconds }, int32(0)},
		{"paxos_grace_seconds = 7", func(o catalog.Options) any { return o.PaxosGraceSeconds }, int32(7)},
		{"memtable_flush_period_in_ms = 5", func(o catalog.Options) any { return o.MemtableFlushPeriod }, int32(5)},
		{"min_index_interval = 1", func(o catalog.Options) any { return o.MinIndexInterval }, int32(1)},
		{"max_index_interval = 4096", func(o catalog.Options) any { return o.MaxIndexInterval }, int32(4096)},
		{"bloom_filter_fp_chance = 0.5", func(o catalog.Options) any { return o.BloomFilterFPChance }, 0.5},
		{"crc_check_chance = 1", func(o catalog.Options) any { return o.CRCCheckChance }, 1.0},
		{"dclocal_read_repair_chance = 0", func(o catalog.Options) any { return o.DCLocalReadRepair }, 0.0},
		{"read_repair_chance = 0.25", func(o catalog.Options) any { return o.ReadRepair }, 0.25},
		{
			"compaction = {'class': 'org.apache.cassandra.db.compaction.LeveledCompactionStrategy', 'sstable_size_in_mb': 10}",
			func(o catalog.Options) any { return text(o.Compaction) }, "map[class:LeveledCompactionStrategy sstable_size_in_mb:10]",
		},
		{
			"compression = {'sstable_compression': 'ZstdCompressor', 'chunk_length_in_kb': 4}",
			func(o catalog.Options) any { return text(o.Compression) },
			"map[chunk_length_in_kb:4 sstable_compression:org.apache.cassandra.io.compress.ZstdCompressor]",
		},
		{
			"compression = {'class': 'org.apache.cassandra.io.compress.SnappyCompressor'}",
			func(o catalog.Options) any { return text(o.Compression) }, "map[sstable_compression:org.apache.cassandra.io.compress.SnappyCompressor]",
		},
		{"compression = {'sstable_compression': ''}", func(o catalog.Options) any { return text(o.Compression) }, "map[]"},
		{"compression = {}", func(o catalog.Options) any { return text(o.Compression) }, "map[]"},
		{"caching = {'keys': 'NONE'}", func(o catalog.Options) any { return text(o.Caching) }, "map[keys:NONE rows_per_partition:ALL]"},
		{"caching = {'enabled': 'false'}", func(o catalog.Options) any { return text(o.Caching) }, "map[enabled:false keys:ALL rows_per_partition:ALL]"},
	} {
		name := fmt.Sprintf("c%d", i)
		b.exec("CREATE TABLE ks." + name + " (k int PRIMARY KEY) WITH " + tt.with)
		if got := tt.got(b.table(name).Options); got != tt.want {
			t.Errorf("CREATE … WITH %s sets %v, want %v", tt.with, got, tt.want)
		}
		before := b.table("t").Options
		b.exec("ALTER TABLE ks.t WITH " + tt.with)
		after := b.table("t").Options
		if got := tt.got(after); got != tt.want {
			t.Errorf("ALTER … WITH %s sets %v, want %v", tt.with, got, tt.want)
		}
		if i > 0 && after.Comment != before.Comment {
			t.Errorf("ALTER … WITH %s changes the comment to %q", tt.with, after.Comment)
		}
	}
	if o := b.table("t").Options; o.DefaultTTL != 60 || o.MaxIndexInterval != 4096 || o.BloomFilterFPChance != 0.5 || o.SpeculativeRetry != "99.0PERCENTILE" || len(o.Compaction) != 2 {
		t.Errorf("a later ALTER has changed what it does not name: %+v", o)
	}
}

func TestOptions_Refusals(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS, createPlain)
	const with = "ALTER TABLE ks.plain WITH "
	b.refuses([]refusal{
		{with + "comment = {'a': 'b'}", cqlerr.Syntax, "Invalid value for property 'comment'. It should be a string"},
		{with + "gc_grace_seconds = {'a': 1}", cqlerr.Syntax, "Invalid value for property 'gc_grace_seconds'. It should be a string"},
		{with + "gc_grace_seconds = 'many'", cqlerr.Syntax, "Invalid integer value many for 'gc_grace_seconds'"},
		{with + "gc_grace_seconds = 2147483648", cqlerr.Syntax, "Invalid integer value 2147483648 for 'gc_grace_seconds'"},
		{with + "paxos_grace_seconds = -1", cqlerr.Config, "paxos_grace_seconds cannot be smaller than 0, (default 864000)"},
		{with + "memtable_flush_period_in_ms = -1", cqlerr.Config, "memtable_flush_period_in_ms cannot be smaller than 0, (default 0)"},
		{with + "min_index_interval = 0", cqlerr.Config, "min_index_interval cannot be smaller than 1, (default 128)"},
		{with + "max_index_interval = 0", cqlerr.Config, "max_index_interval cannot be smaller than 1, (default 2048)"},
		{with + "max_index_interval = 5", cqlerr.Config, "max_index_interval must be greater than min_index_interval"},
		{with + "min_index_interval = 4000", cqlerr.Config, "max_index_interval must be greater than min_index_interval"},
		{with + "read_repair_chance = 1.5", cqlerr.Config, "read_repair_chance must be between 0 and 1.0 (got 1.5)"},
		{with + "read_repair_chance = -0.1", cqlerr.Config, "read_repair_chance must be between 0 and 1.0 (got -0.1)"},
		{with + "crc_check_chance = 'NaN'", cqlerr.Config, "crc_check_chance must be between 0 and 1.0 (got NaN)"},
		{with + "bloom_filter_fp_chance = 'often'", cqlerr.Syntax, "Invalid double value often for 'bloom_filter_fp_chance'"},
		{with + "compaction = 'LeveledCompactionStrategy'", cqlerr.Syntax, "Invalid value for property 'compaction'. It should be a map."},
		{with + "compaction = {'sstable_size_in_mb': 10}", cqlerr.Config, "Missing sub-option 'class' for the 'compaction' option."},
		{with + "compression = 'LZ4Compressor'", cqlerr.Syntax, "Invalid value for property 'compression'. It should be a map."},
		{with + "compression = {'sstable_compression': 'ZipCompressor'}", cqlerr.Config, "Unsupported compression class 'ZipCompressor'."},
		{with + "caching = 'ALL'", cqlerr.Syntax, "Invalid value for property 'caching'. It should be a map."},
		{with + "caching = {'columns': 'ALL'}", cqlerr.Config, "Invalid caching option: columns"},
		// An unknown name is found before a wrong value.
		{with + "gc_grace_seconds = 'many' AND unheard = 1", cqlerr.Syntax, "Unknown property 'unheard'"},
	})
}

// A column of a dropped one's name may not be a collection of another type: its old cells would be
// read as cells of the new one.
func TestAlterTable_AddsADroppedColumn(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS, "CREATE TABLE ks.t (k int PRIMARY KEY, l list<int>, v int)", "ALTER TABLE ks.t DROP l", "ALTER TABLE ks.t DROP v")
	b.refuses([]refusal{
		{"ALTER TABLE ks.t ADD l list<text>", cqlerr.Invalid, "Cannot add a collection with the name l because a collection with the same name and a different type has already been used in the past"},
		{"ALTER TABLE ks.t ADD l set<int>", cqlerr.Invalid, "Cannot add a collection with the name l because a collection with the same name and a different type has already been used in the past"},
		{"ALTER TABLE ks.t ADD s int static", cqlerr.Invalid, "Static columns are only useful (and thus allowed) if the table has at least one clustering column"},
	})
	b.exec("ALTER TABLE ks.t ADD l list<int>", "ALTER TABLE ks.t ADD v text")
	if got := b.table("t").ByName["l"].Type.String(); got != "list<int>" {
		t.Errorf("column l has the type %s", got)
	}
}

// The columns of a log belong to its base table.
func TestAlterTable_OfALog(t *testing.T) {
	t.Parallel()
	old := setup(t, "5.1")
	old.exec(createKS, createBase)
	old.refuses([]refusal{
		{`ALTER TABLE ks.base_scylla_cdc_log DROP a`, cqlerr.Invalid, "scyllafake does not support this change of the CDC log ks.base_scylla_cdc_log (it kills a ScyllaDB node)"},
	})
	b := setup(t, "2025.1")
	b.exec(createKS+" AND tablets = {'enabled': false}", createBase)
	b.refuses([]refusal{
		{`ALTER TABLE ks.base_scylla_cdc_log DROP a`, cqlerr.Invalid, "You cannot modify the set of columns of a CDC log table directly. Modify the base table instead."},
		{`ALTER TABLE ks.base_scylla_cdc_log ADD x int`, cqlerr.Invalid, "You cannot modify the set of columns of a CDC log table directly. Modify the base table instead."},
	})
}
