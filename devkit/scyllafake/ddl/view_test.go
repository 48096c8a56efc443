package ddl

import (
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

const (
	createBV = "CREATE TABLE ks.bv (pk int, ck int, v int, w text, PRIMARY KEY (pk, ck))"
	createMV = "CREATE MATERIALIZED VIEW ks.mv AS SELECT * FROM ks.bv WHERE v IS NOT NULL AND pk IS NOT NULL AND ck IS NOT NULL PRIMARY KEY (v, pk, ck)"
	// narrow has neither v nor w.
	createNarrow = "CREATE MATERIALIZED VIEW ks.narrow AS SELECT pk, ck FROM ks.bv WHERE pk IS NOT NULL AND ck IS NOT NULL PRIMARY KEY (ck, pk)"
)

// The messages that are in recordings A5.kinds, B5, E13 and E15 are the ones of a
// real node; the others are in its sources.
func TestViews_Refusals(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS, createBase, createPlain, createBV, createMV,
		strings.Replace(createKS, "ks", "other", 1),
		"CREATE TABLE ks.ix (k int PRIMARY KEY, v int)", "CREATE INDEX ix_v ON ks.ix (v)",
		"CREATE TABLE ks.odd (k int, c int, l list<int>, d frozen<list<int>>, s int static, e duration, PRIMARY KEY (k, c))",
		"CREATE TABLE ks.brief (k int PRIMARY KEY, v int) WITH gc_grace_seconds = 0",
	)
	const (
		notNull = " WHERE v IS NOT NULL AND pk IS NOT NULL AND ck IS NOT NULL"
		key     = " PRIMARY KEY (v, pk, ck)"
		odd     = "CREATE MATERIALIZED VIEW ks.m2 AS SELECT k, c FROM ks.odd WHERE k IS NOT NULL AND c IS NOT NULL AND l IS NOT NULL AND s IS NOT NULL AND e IS NOT NULL PRIMARY KEY "
	)
	view := func(rest string) string { return "CREATE MATERIALIZED VIEW ks.m2 AS SELECT " + rest }
	b.refuses([]refusal{
		{createMV, cqlerr.AlreadyExists, `Cannot add already existing table "mv" to keyspace "ks"`},
		{strings.Replace(createMV, "ks.mv", "ks.plain", 1), cqlerr.AlreadyExists, `Cannot add already existing table "plain" to keyspace "ks"`},
		{view("* FROM ks.plain" + notNull + key), cqlerr.Invalid, "Unable to include static column 's' which would be included by Materialized View SELECT * statement"},
		{view("* FROM ks.bv PRIMARY KEY (v, pk, ck)"), cqlerr.Invalid, "Primary key column 'v' is required to be filtered by 'IS NOT NULL'"},
		{view(`* FROM ks.base_scylla_cdc_log WHERE "cdc$time" IS NOT NULL PRIMARY KEY ("cdc$time")`), cqlerr.Invalid, "Materialized views cannot be created on CDC Log tables"},
		{view("* FROM ks.bv" + notNull + key + " WITH cdc = {'enabled': true}"), cqlerr.Invalid, "Cannot enable CDC for a materialized view"},
		{view("* FROM ks.bv" + notNull + key + " WITH COMPACT STORAGE"), cqlerr.Invalid, "Cannot use 'COMPACT STORAGE' when defining a materialized view"},
		{view("* FROM ks.bv" + notNull + key + " WITH nosuch = 1"), cqlerr.Syntax, "Unknown property 'nosuch'"},
		{view("* FROM ks.bv" + notNull + key + " WITH default_time_to_live = 5"), cqlerr.Invalid, "Cannot set or alter default_time_to_live for a materialized view. Data in a materialized view always expire at the same time than the corresponding data in the parent table."},
		{view("* FROM other.bv" + notNull + key), cqlerr.Invalid, "Cannot create a materialized view on a table in a separate keyspace ('other' != 'ks')"},
		{view("* FROM ks.nosuch" + notNull + key), cqlerr.Invalid, "unconfigured table nosuch"},
		{view("* FROM ks.mv" + notNull + key), cqlerr.Invalid, "Materialized views cannot be created against other materialized views"},
		{view("* FROM ks.brief WHERE v IS NOT NULL PRIMARY KEY (v, k)"), cqlerr.Invalid, "Cannot create materialized view 'm2' for base table 'brief' with gc_grace_seconds of 0, since this value is used to TTL undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to expire before being replayed."},
		{view("v AS x FROM ks.bv" + notNull + key), cqlerr.Invalid, "Cannot use alias when defining a materialized view"},
		{view("ttl(v) FROM ks.bv" + notNull + key), cqlerr.Invalid, "Cannot use general expressions when defining a materialized view"},
		{view("nosuch FROM ks.bv" + notNull + key), cqlerr.Invalid, "Unknown column name detected in CREATE MATERIALIZED VIEW statement: nosuch"},
		{view("* FROM ks.bv" + notNull + " PRIMARY KEY (v, nosuch)"), cqlerr.Invalid, "Unknown column name detected in CREATE MATERIALIZED VIEW statement: nosuch"},
		{view("* FROM ks.bv" + notNull + " PRIMARY KEY (v, v)"), cqlerr.Invalid, "Duplicate entry found in PRIMARY KEY: v"},
		{view("* FROM ks.bv" + notNull + " AND w IS NOT NULL PRIMARY KEY (v, w, pk, ck)"), cqlerr.Invalid, "Cannot include more than one non-primary key column 'w' in materialized view primary key"},
		{view("* FROM ks.bv" + notNull + " PRIMARY KEY (v, pk)"), cqlerr.Invalid, "Cannot create Materialized View m2 without primary key columns from base bv (ck)"},
		{view("* FROM ks.bv" + notNull + key + " WITH CLUSTERING ORDER BY (w DESC)"), cqlerr.Invalid, "CLUSTERING ORDER BY lists w which is not a clustering column in the view"},
		{view("* FROM ks.bv WHERE v = ?" + key), cqlerr.Invalid, "Cannot use query parameters in CREATE MATERIALIZED VIEW statements"},
		{view("* FROM ks.bv WHERE nosuch IS NOT NULL" + key), cqlerr.Invalid, "Undefined name nosuch in where clause ('unresolved(nosuch)')"},
		{view("* FROM ks.bv" + notNull + " AND ck > 5" + key), cqlerr.Invalid, "scyllafake does not support materialized views with conditions other than IS NOT NULL"},
		{odd + "(l, k, c)", cqlerr.Invalid, "Cannot use MultiCell column 'l' in PRIMARY KEY of materialized view"},
		{odd + "(e, k, c)", cqlerr.Invalid, "Cannot use Duration column 'e' in PRIMARY KEY of materialized view"},
		{odd + "(s, k, c)", cqlerr.Invalid, "Cannot use Static column 's' in PRIMARY KEY of materialized view"},
		{strings.Replace(view("* FROM ks.bv"+notNull+key), "ks.m2", `ks."m-2"`, 1), cqlerr.Invalid, `"m-2" is not a valid materialized view name (must contain alphanumeric character only: [0-9A-Za-z] or the underscore)`},
		{"CREATE MATERIALIZED VIEW system_distributed.m AS SELECT * FROM service_levels PRIMARY KEY (service_level)", cqlerr.Unauthorized, "Cannot ALTER <table system_distributed.service_levels>"},
		{"CREATE MATERIALIZED VIEW system.m AS SELECT * FROM local PRIMARY KEY (key)", cqlerr.Unauthorized, "system keyspace is not user-modifiable."},

		{"ALTER MATERIALIZED VIEW ks.bv WITH comment = 'x'", cqlerr.Invalid, "Cannot use ALTER MATERIALIZED VIEW on Table"},
		{"ALTER MATERIALIZED VIEW ks.nosuch WITH comment = 'x'", cqlerr.Invalid, "unconfigured table nosuch"},
		{"ALTER MATERIALIZED VIEW ks.mv WITH gc_grace_seconds = 0", cqlerr.Invalid, "Cannot alter gc_grace_seconds of a materialized view to 0, since this value is used to TTL undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to expire before being replayed."},
		{"ALTER MATERIALIZED VIEW ks.mv WITH default_time_to_live = 5", cqlerr.Invalid, "Cannot set or alter default_time_to_live for a materialized view. Data in a materialized view always expire at the same time than the corresponding data in the parent table."},
		{"DROP MATERIALIZED VIEW ks.bv", cqlerr.Invalid, "Cannot use DROP MATERIALIZED VIEW on Table"},
		{"DROP MATERIALIZED VIEW ks.nosuch", cqlerr.Config, "Cannot drop non existing materialized view 'nosuch' in keyspace 'ks'."},
		{"DROP MATERIALIZED VIEW ks.ix_v_index", cqlerr.Invalid, "Cannot use DROP MATERIALIZED VIEW on Index"},

		{"ALTER TABLE ks.mv ADD extra int", cqlerr.Invalid, "Cannot use ALTER TABLE on Materialized View"},
		{"DROP TABLE ks.mv", cqlerr.Invalid, "Cannot use DROP TABLE on Materialized View"},
		{"TRUNCATE ks.mv", cqlerr.Invalid, "Cannot TRUNCATE materialized view directly; must truncate base table instead"},
		{"CREATE INDEX ON ks.mv (w)", cqlerr.Invalid, "Secondary indexes are not supported on materialized views"},
		{"ALTER TABLE ks.bv DROP w", cqlerr.Invalid, "Cannot drop column w from base table ks.bv: materialized view mv needs this column"},
		{"DROP TABLE ks.bv", cqlerr.Invalid, "Cannot drop table when materialized views still depend on it (ks.{mv})"},
		{"ALTER TABLE ks.bv WITH gc_grace_seconds = 0", cqlerr.Invalid, "Cannot alter gc_grace_seconds of the base table of a materialized view to 0, since this value is used to TTL undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to expire before being replayed."},
	})
}

// Events are in the order of recordings B5 and E15.
func TestViews_Events(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS, createBV+" WITH cdc = {'enabled': true}")
	b.events([]step{
		{createMV, "CREATED TABLE mv; UPDATED TABLE bv"},
		{strings.Replace(createMV, "VIEW", "VIEW IF NOT EXISTS", 1), ""},
		{createNarrow, "CREATED TABLE narrow; UPDATED TABLE bv"},
		{"ALTER MATERIALIZED VIEW ks.mv WITH cdc = {'enabled': true}", "UPDATED TABLE bv; UPDATED TABLE mv"},
		{"CREATE INDEX ON ks.bv (w)", "CREATED TABLE bv_w_idx_index; UPDATED TABLE bv; UPDATED TABLE bv_scylla_cdc_log"},
		{"ALTER TABLE ks.bv ADD extra int", "UPDATED TABLE bv; UPDATED TABLE bv_scylla_cdc_log; UPDATED TABLE bv_w_idx_index; UPDATED TABLE mv; UPDATED TABLE narrow"},
		{"ALTER TABLE ks.bv ADD fixed int static", "UPDATED TABLE bv; UPDATED TABLE bv_scylla_cdc_log"},
		{"ALTER TABLE ks.bv ALTER w TYPE blob", "UPDATED TABLE bv; UPDATED TABLE bv_scylla_cdc_log; UPDATED TABLE bv_w_idx_index; UPDATED TABLE mv"},
		{"ALTER TABLE ks.bv WITH comment = 'x'", "UPDATED TABLE bv; UPDATED TABLE bv_scylla_cdc_log"},
		{"DROP MATERIALIZED VIEW ks.mv", "DROPPED TABLE mv"},
		{"DROP MATERIALIZED VIEW IF EXISTS ks.mv", ""},
		{"DROP KEYSPACE ks", "DROPPED TABLE bv_w_idx_index; DROPPED TABLE narrow; DROPPED TABLE bv; DROPPED TABLE bv_scylla_cdc_log; DROPPED KEYSPACE ks"},
	})
}

func columnNames(t *catalog.Table) string {
	var names []string
	for _, c := range t.Columns() {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

// A view follows its base: SELECT * takes new columns in, and a renamed key
// column has its new name everywhere.
func TestViews_FollowTheirBase(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS, createBV, createMV+" WITH CLUSTERING ORDER BY (ck DESC)", createNarrow)
	mv, _ := b.Schema().Table("ks", "mv")
	if got := columnNames(mv); got != "v pk ck w" || mv.Clustering[0].Desc || !mv.Clustering[1].Desc {
		t.Errorf("columns %s, descending %v %v", got, mv.Clustering[0].Desc, mv.Clustering[1].Desc)
	}
	b.exec("ALTER TABLE ks.bv ADD extra text", `ALTER TABLE ks.bv RENAME ck TO "C k"`)
	base, _ := b.Schema().Table("ks", "bv")
	for name, want := range map[string]struct{ columns, where, virtual string }{
		"mv":     {"v pk C k extra w", `v IS NOT null AND pk IS NOT null AND "C k" IS NOT null`, ""},
		"narrow": {"C k pk", `pk IS NOT null AND "C k" IS NOT null`, "extra v w"},
	} {
		v, _ := b.Schema().Table("ks", name)
		var virtual []string
		for _, c := range virtualColumns(v, base) {
			virtual = append(virtual, c.Name)
		}
		if columnNames(v) != want.columns || v.View.WhereClause != want.where || strings.Join(virtual, " ") != want.virtual {
			t.Errorf("%s: columns %s, virtual %v, where %s\nwant %+v", name, columnNames(v), virtual, v.View.WhereClause, want)
		}
	}
	// A view needs columns that it does not select too, unless its key has a regular
	// column.
	b.exec("DROP MATERIALIZED VIEW ks.mv")
	_, err := b.try("ALTER TABLE ks.bv DROP extra")
	if want := "2200 Cannot drop column extra from base table ks.bv: materialized view narrow needs this column"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	b.exec("DROP MATERIALIZED VIEW ks.narrow", "ALTER TABLE ks.bv DROP extra", "DROP TABLE ks.bv")
}

// A change of a view invalidates the statements prepared for its base, which ScyllaDB
// reports as updated.
func TestViews_ReplaceTheirBase(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS, createBV)
	before, _ := b.Schema().Table("ks", "bv")
	for _, text := range []string{createMV, "ALTER MATERIALIZED VIEW ks.mv WITH comment = 'x'"} {
		b.exec(text)
		after, _ := b.Schema().Table("ks", "bv")
		if after == before || after.ID != before.ID || after.StoreID != before.StoreID {
			t.Errorf("%s: the base is not replaced by an equal one", text)
		}
		before = after
	}
}

func TestViews_AreLoaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want map[string]string
	t.Run("write", func(t *testing.T) {
		b := reopen(t, "5.1", dir)
		b.exec(createKS, createBV, createMV, createNarrow, "ALTER MATERIALIZED VIEW ks.mv WITH cdc = {'enabled': true} AND comment = 'x'")
		want = describe(b.Schema())
	})
	b := reopen(t, "5.1", dir)
	got := describe(b.Schema())
	for k := range want {
		if got[k] != want[k] {
			t.Errorf("%s:\n got %s\nwant %s", k, got[k], want[k])
		}
	}
	b.exec("ALTER TABLE ks.bv ADD more int", "DROP MATERIALIZED VIEW ks.mv", "DROP KEYSPACE ks")
}

func TestViews_Tablets(t *testing.T) {
	t.Parallel()
	b := setup(t, "2025.4")
	b.exec(createKS+" AND tablets = {'enabled': true}", createBV)
	_, err := b.try(createMV)
	if want := "2200 scyllafake does not support materialized views in a keyspace with tablets"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}
