package ddl

import (
	"fmt"
	"maps"
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

// A column may get another type only where all of its values are values of that, and for a
// part of the key only where the order of rows stays.
func TestAlterTable_Types(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS)
	for i, tt := range []struct {
		from, to    string
		column, key bool // whether a regular column and a clustering column may change so
	}{
		{"int", "int", true, true},
		{"ascii", "text", true, true},
		{"ascii", "blob", true, true},
		{"text", "blob", true, true},
		{"text", "ascii", false, false},
		{"int", "blob", true, false},
		{"int", "varint", true, false},
		{"bigint", "varint", true, false},
		{"smallint", "varint", false, false},
		{"timeuuid", "uuid", true, false},
		{"uuid", "timeuuid", false, false},
		{"int", "bigint", false, false},
		{"bigint", "timestamp", false, false},
		{"frozen<list<int>>", "blob", true, false},
		{"frozen<list<int>>", "frozen<list<varint>>", false, false},
	} {
		name := fmt.Sprintf("t%d", i)
		b.exec(fmt.Sprintf("CREATE TABLE ks.%s (k int, c %s, v %s, PRIMARY KEY (k, c))", name, tt.from, tt.from))
		for column, may := range map[string]bool{"v": tt.column, "c": tt.key} {
			_, err := b.try(fmt.Sprintf("ALTER TABLE ks.%s ALTER %s TYPE %s", name, column, tt.to))
			if (err == nil) != may {
				t.Errorf("ALTER %s from %s to %s: %v, want it allowed: %v", column, tt.from, tt.to, err, may)
			}
			want := tt.from
			if may {
				want = tt.to
			}
			if got := b.table(name).ByName[column].Type.String(); got != want {
				t.Errorf("column %s of type %s has the type %s after an ALTER to %s", column, tt.from, got, tt.to)
			}
		}
	}
	b.exec("CREATE TABLE ks.cells (k int PRIMARY KEY, l list<int>)")
	b.refuses([]refusal{
		{"ALTER TABLE ks.cells ALTER l TYPE blob", cqlerr.Config, "Cannot change l from type list<int> to type blob: types are incompatible."},
		{"ALTER TABLE ks.cells ALTER nothing TYPE blob", cqlerr.Invalid, "Column nothing was not found in table cells"},
	})
}

// A column of a dropped one's name may not be a collection of another type: its old cells
// would be read as those of the new one.
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

func TestAlterTable_Renames(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS, createPlain)
	b.refuses([]refusal{
		{"ALTER TABLE ks.plain RENAME ck TO v", cqlerr.Invalid, "Cannot rename column ck to v in table plain; another column of that name already exist"},
		{"ALTER TABLE ks.plain RENAME ck TO ck", cqlerr.Invalid, "Cannot rename column ck to ck in table plain; another column of that name already exist"},
	})
	b.exec("ALTER TABLE ks.plain RENAME ck TO c2 AND pk TO p2")
	p := b.table("plain")
	if p.ByName["ck"] != nil || p.ByName["pk"] != nil || p.Clustering[0].Name != "c2" || p.ByName["c2"] != p.Clustering[0] || p.ByName["p2"].Kind != catalog.PartitionKey {
		t.Errorf("after RENAME the columns are %v", maps.Keys(p.ByName))
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

func TestTypes_Refusals(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS,
		"CREATE TYPE ks.inner (x int, y text)",
		"CREATE TYPE ks.outer (i frozen<inner>, z ascii, l frozen<list<int>>)",
	)
	b.refuses([]refusal{
		{"CREATE TYPE ks.bad (x int, x text)", cqlerr.Invalid, "Duplicate field name x in type bad"},
		{"CREATE TYPE ks.bad (x counter)", cqlerr.Invalid, "A user type cannot contain counters"},
		{"CREATE TYPE ks.bad (x inner)", cqlerr.Invalid, "A user type cannot contain non-frozen user type fields"},
		{"ALTER TYPE ks.inner ADD x int", cqlerr.Invalid, "Cannot add new field x to type inner: a field of the same name already exists"},
		{"ALTER TYPE ks.inner ADD o frozen<outer>", cqlerr.Invalid, "Cannot add new field o of type frozen<outer> to type ks.inner as this would create a circular reference"},
		{"ALTER TYPE ks.inner ADD s frozen<list<frozen<inner>>>", cqlerr.Invalid, "Cannot add new field s of type frozen<list<frozen<inner>>> to type ks.inner as this would create a circular reference"},
		{"ALTER TYPE ks.inner RENAME a TO b", cqlerr.Invalid, "Unknown field a in type inner"},
		{"ALTER TYPE ks.inner RENAME x TO y", cqlerr.Invalid, "Duplicate field name y in type inner"},
		{"ALTER TYPE ks.inner ALTER a TYPE text", cqlerr.Invalid, "Unknown field a in type inner"},
		{"ALTER TYPE ks.inner ALTER x TYPE text", cqlerr.Invalid, "Type text is incompatible with previous type int of field x in user type inner"},
		{"ALTER TYPE ks.outer ALTER l TYPE frozen<list<text>>", cqlerr.Invalid, "Type frozen<list<text>> is incompatible with previous type frozen<list<int>> of field l in user type outer"},
		{"DROP TYPE ks.inner", cqlerr.Invalid, "Cannot drop user type ks.inner as it is still used by user type outer"},
	})
	for _, nothing := range []string{"CREATE TYPE IF NOT EXISTS ks.inner (a int)", "DROP TYPE IF EXISTS ks.unheard", "DROP TYPE IF EXISTS unheard.inner"} {
		before := b.Schema()
		b.exec(nothing)
		if b.Schema() != before {
			t.Errorf("%s changes the schema", nothing)
		}
	}
}

// A changed type is changed wherever it is used: in other types, in collections and tuples,
// in tables and their views. All of it is in the schema that is loaded again.
func TestAlterType_ChangesItsUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check := func(b *fixture) {
		t := b.t
		t.Helper()
		fields := func(table, column string) string {
			typ := b.table(table).ByName[column].Type
			for typ.Name != "inner" {
				switch {
				case typ.Elem != nil:
					typ = typ.Elem
				case len(typ.Fields) > 0:
					typ = typ.Fields[len(typ.Fields)-1].Type
				default:
					return "no inner"
				}
			}
			text := fmt.Sprint(typ.Frozen)
			for _, f := range typ.Fields {
				text += " " + f.Name + ":" + f.Type.String()
			}
			return text
		}
		for _, table := range []string{"t", "byc"} {
			for column, frozen := range map[string]bool{"c": true, "a": false, "l": true, "m": true, "p": true, "o": true} {
				if got, want := fields(table, column), fmt.Sprint(frozen)+" w:varint q:text n:bigint"; got != want {
					t.Errorf("in %s.%s the type is %s, want %s", table, column, got, want)
				}
			}
		}
	}
	t.Run("write", func(t *testing.T) {
		b := reopen(t, "5.1", dir)
		b.exec(createKS,
			"CREATE TYPE ks.inner (x int, y text)",
			"CREATE TYPE ks.outer (i frozen<inner>)",
			"CREATE TYPE ks.other (z int)",
			"CREATE TABLE ks.plain (k int PRIMARY KEY, v int, o frozen<other>)",
			"CREATE TABLE ks.t (k int, c frozen<inner>, a inner, l list<frozen<inner>>, m map<int, frozen<outer>>, p frozen<tuple<int, inner>>, o frozen<outer>, PRIMARY KEY (k, c))",
			"CREATE MATERIALIZED VIEW ks.byc AS SELECT * FROM ks.t WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k)",
		)
		untouched := b.table("plain")
		const changed = "UPDATED TYPE inner; UPDATED TYPE outer; UPDATED TABLE t; UPDATED TABLE byc"
		b.events([]step{
			{"ALTER TYPE ks.inner ADD n bigint", changed},
			{"ALTER TYPE ks.inner RENAME x TO w AND y TO q", changed},
			{"ALTER TYPE ks.inner ALTER w TYPE varint", changed},
		})
		if b.table("plain") != untouched {
			t.Error("a table that does not use the type is changed")
		}
		check(b)
	})
	check(reopen(t, "5.1", dir))
}
