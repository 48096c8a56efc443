package ddl

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
)

// describe is everything of a schema as text.
func describe(s *catalog.Schema) map[string]string {
	out := map[string]string{"version": s.Version.String()}
	for name, ks := range s.Keyspaces {
		out[name] = fmt.Sprint(ks.Replication, ks.DurableWrites, ks.Tablets, ks.InitialTablets)
		for n, t := range ks.Tables {
			var b strings.Builder
			fmt.Fprint(&b, t.ID, t.StoreID, t.Kind, t.NextColumnID, t.Options, t.CDC)
			for _, c := range t.Columns() {
				fmt.Fprint(&b, ";", c.Name, c.Type, c.Kind, c.Position, c.Desc, c.ID)
				if t.ByName[c.Name] != c || t.ByID[c.ID] != c {
					b.WriteString(" not found by name or id")
				}
			}
			for _, d := range t.Dropped {
				fmt.Fprint(&b, ";", d.Name, d.Type, d.Kind, d.DroppedTime)
			}
			out[name+"."+n] = b.String()
		}
	}
	return out
}

func TestOpen_LoadsTheSchema(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want map[string]string
	var nextStoreID uint32
	t.Run("write", func(t *testing.T) {
		b := reopen(t, "2025.4", dir)
		b.exec(createKS+" AND tablets = {'enabled': true, 'initial': 4}",
			`CREATE TABLE ks.t (p int, q text, c timeuuid, d int, st int static, "Mixed" map<text, frozen<tuple<int, text>>>, gone text, PRIMARY KEY ((p, q), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND cdc = {'enabled': true, 'delta': 'keys', 'ttl': 7} AND comment = 'it''s'`,
			"ALTER TABLE ks.t DROP gone", "ALTER TABLE ks.t ADD later int",
			"CREATE TABLE ks.plain (k int PRIMARY KEY, v int)",
			"CREATE TABLE ks.dropped (k int PRIMARY KEY)", "DROP TABLE ks.dropped",
			"CREATE TABLE system_distributed.mine (k int PRIMARY KEY)",
		)
		want = describe(b.Schema())
		nextStoreID = b.nextStoreID
	})
	b := reopen(t, "2025.4", dir)
	got := describe(b.Schema())
	for k := range want {
		if got[k] != want[k] {
			t.Errorf("%s:\n got %s\nwant %s", k, got[k], want[k])
		}
	}
	if len(got) != len(want) || b.nextStoreID != nextStoreID {
		t.Errorf("%d objects, want %d; next number %d, want %d", len(got), len(want), b.nextStoreID, nextStoreID)
	}
	b.exec("ALTER TABLE ks.t ADD more int", "DROP KEYSPACE ks")
}

// A column that was dropped and added again has a new number.
func TestAlterTable_ColumnNumbersAreNotReused(t *testing.T) {
	t.Parallel()
	b := setup(t, "5.1")
	b.exec(createKS, createPlain)
	before, _ := b.Schema().Table("ks", "plain")
	b.exec("ALTER TABLE ks.plain DROP w", "ALTER TABLE ks.plain ADD w text")
	after, _ := b.Schema().Table("ks", "plain")
	if after.ByName["w"].ID == before.ByName["w"].ID {
		t.Errorf("the new column has the old one's number %d", after.ByName["w"].ID)
	}
	if after.ByName["v"].ID != before.ByName["v"].ID {
		t.Error("another column's number has changed")
	}
	if before.ByName["w"] == nil || before == after {
		t.Error("the old snapshot has changed")
	}
}

// The next start completes a drop that a crash interrupted before the removal of rows.
func TestOpen_FinishesDrops(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var plain *catalog.Table
	t.Run("write", func(t *testing.T) {
		b := reopen(t, "5.1", dir)
		b.exec(createKS, "CREATE TABLE ks.kv (k text PRIMARY KEY, v text)")
		plain, _ = b.Schema().Table("ks", "kv")
		row := system.Insert(plain, 1, system.Values{"k": "k", "v": "v"})
		if err := b.o.Store.Apply([]*store.Mutation{row}, dropMeta(plain.StoreID, true)); err != nil {
			t.Fatal(err)
		}
	})
	b := reopen(t, "5.1", dir)
	it, err := b.o.Store.Scan(store.Scan{Table: plain, MinToken: catalog.MinToken, MaxToken: 1<<63 - 1})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	if it.NextPartition() {
		t.Error("the rows are still there")
	}
	if metas, err := b.o.Store.Metas(dropPrefix); err != nil || len(metas) != 0 {
		t.Errorf("notes left: %v, %v", metas, err)
	}
}

func TestTablets(t *testing.T) {
	t.Parallel()
	b := setup(t, "2025.4")
	b.exec(createKS+" AND tablets = {'enabled': true, 'initial': 4}", "CREATE TABLE ks.t (k int PRIMARY KEY) WITH cdc = {'enabled': true}")
	table, _ := b.Schema().Table("ks", "t")
	if n := b.o.Topology.Tablets(table.StoreID); n != 4 {
		t.Errorf("%d tablets, want the initial 4", n)
	}
	b.exec("ALTER TABLE ks.t WITH cdc = {'enabled': false}", "ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 5}")
	if n := b.o.Topology.Tablets(table.StoreID); n != 4 {
		t.Errorf("%d tablets after CDC was off and on", n)
	}
	b.exec("DROP KEYSPACE ks")
	if n := b.o.Topology.Tablets(table.StoreID); n != 0 {
		t.Errorf("%d tablets after the keyspace was dropped", n)
	}
	if _, err := b.try("CREATE KEYSPACE s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND tablets = {'enabled': true}"); err == nil {
		t.Error("SimpleStrategy with tablets is accepted")
	}
	b.exec(createKS)
	if b.Schema().Keyspaces["ks"].Tablets {
		t.Error("tablets without having been asked for")
	}
}

// From 6.0 to 2025.3 a table with tablets cannot have CDC.
func TestTablets_WithoutCDC(t *testing.T) {
	t.Parallel()
	b := setup(t, "6.2")
	b.exec(createKS + " AND tablets = {'enabled': true}")
	_, err := b.try("CREATE TABLE ks.t (k int PRIMARY KEY) WITH cdc = {'enabled': true}")
	want := cqlerr.Invalidf("Cannot create CDC log for a table ks.t, because keyspace uses tablets. See issue #16317.")
	if !reflect.DeepEqual(err, want) {
		t.Errorf("error = %v, want %v", err, want)
	}
	b.exec("CREATE TABLE ks.t (k int PRIMARY KEY)")
}
