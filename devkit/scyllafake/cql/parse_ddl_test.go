package cql

import "testing"

func TestParse_Keyspaces(t *testing.T) {
	t.Parallel()
	check(t, map[string]Statement{
		`USE "Ks"`: &Use{"Ks"},
		"CREATE KEYSPACE IF NOT EXISTS Ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND durable_writes = false": &CreateKeyspace{
			IfNotExists: true, Keyspace: "ks",
			With: []Property{
				{Name: "replication", IsMap: true, Map: []PropertyEntry{{str("class"), str("SimpleStrategy")}, {str("replication_factor"), integer("1")}}},
				{Name: "durable_writes", Value: Literal{LitBool, "false"}},
			},
		},
		"ALTER SCHEMA ks WITH durable_writes = true": &AlterKeyspace{"ks", []Property{{Name: "durable_writes", Value: Literal{LitBool, "true"}}}},
		"DROP KEYSPACE IF EXISTS ks":                 &DropKeyspace{true, "ks"},
	})
}

func TestParse_Tables(t *testing.T) {
	t.Parallel()
	name := Name{"ks", "t"}
	check(t, map[string]Statement{
		"CREATE TABLE ks.t (a int PRIMARY KEY, b text static,)": &CreateTable{
			Table: name, PrimaryKeys: 1,
			Columns: []ColumnDef{{Name: "a", Type: "int", PrimaryKey: true}, {Name: "b", Type: "text", Static: true}},
		},
		"CREATE COLUMNFAMILY ks.t (a int, \"B\" int, c int, PRIMARY KEY ((a, \"B\"), c)) WITH CLUSTERING ORDER BY (c DESC) AND ID = 'x' " +
			"AND gc_grace_seconds=-1 AND cdc = {'enabled': true} AND compact storage AND x = ALL AND y = NULL": &CreateTable{
			Table: name, PrimaryKeys: 1,
			Columns:      []ColumnDef{{Name: "a", Type: "int"}, {Name: "B", Type: "int"}, {Name: "c", Type: "int"}},
			PartitionKey: []string{"a", "B"}, Clustering: []string{"c"},
			ClusterOrder: []Order{{"c", true}}, CompactStorage: true,
			With: []Property{
				{Name: "id", Value: str("x")},
				{Name: "gc_grace_seconds", Value: integer("-1")},
				{Name: "cdc", IsMap: true, Map: []PropertyEntry{{str("enabled"), Literal{LitBool, "true"}}}},
				{Name: "x", Value: str("ALL")},
				{Name: "y", Value: str("NULL")},
			},
		},
		"ALTER TABLE ks.t ADD x int static":         &AlterTable{Table: name, Add: []ColumnDef{{Name: "x", Type: "int", Static: true}}},
		"ALTER TABLE ks.t ADD (x int, y text)":      &AlterTable{Table: name, Add: []ColumnDef{{Name: "x", Type: "int"}, {Name: "y", Type: "text"}}},
		"ALTER TABLE ks.t DROP x":                   &AlterTable{Table: name, Drop: []string{"x"}},
		"ALTER TABLE ks.t DROP (x, y)":              &AlterTable{Table: name, Drop: []string{"x", "y"}},
		"ALTER TABLE ks.t RENAME a TO b AND c TO d": &AlterTable{Table: name, Rename: [][2]string{{"a", "b"}, {"c", "d"}}},
		"ALTER TABLE ks.t ALTER a TYPE blob":        &AlterTable{Table: name, AlterType: &ColumnDef{Name: "a", Type: "blob"}},
		"ALTER TABLE ks.t WITH comment = 'x'":       &AlterTable{Table: name, With: []Property{{Name: "comment", Value: str("x")}}},
		"DROP TABLE ks.t":                           &DropTable{Table: name},
		"DROP TABLE IF EXISTS t":                    &DropTable{true, Name{Name: "t"}},
		"TRUNCATE ks.t":                             &Truncate{name},
		"TRUNCATE TABLE ks.t":                       &Truncate{name},
	})
}

func TestParse_IndexesTypesViews(t *testing.T) {
	t.Parallel()
	name := Name{"ks", "t"}
	check(t, map[string]Statement{
		"CREATE INDEX ON ks.t (v)": &CreateIndex{Table: name, Target: "v", Targets: []IndexTarget{{"", []string{"v"}}}},
		"CREATE CUSTOM INDEX IF NOT EXISTS i ON ks.t (keys(m)) USING 'C' WITH options = {'a': 'b'}": &CreateIndex{
			IfNotExists: true, Index: "i", Table: name, Target: "m", TargetKind: "keys", IsCustom: true, Custom: "C",
			Targets: []IndexTarget{{"keys", []string{"m"}}},
			With:    []Property{{Name: "options", IsMap: true, Map: []PropertyEntry{{str("a"), str("b")}}}},
		},
		"CREATE INDEX ON ks.t ((a, b), v)": &CreateIndex{
			Table: name, Target: "v", Local: []string{"a", "b"},
			Targets: []IndexTarget{{"columns", []string{"a", "b"}}, {"", []string{"v"}}},
		},
		"CREATE INDEX ON ks.t ()":                &CreateIndex{Table: name},
		"CREATE INDEX ON ks.t (a, b)":            &CreateIndex{Table: name, Targets: []IndexTarget{{"", []string{"a"}}, {"", []string{"b"}}}},
		"DROP INDEX IF EXISTS ks.i":              &DropIndex{true, Name{"ks", "i"}},
		"CREATE TYPE ks.u (x int, y list<text>)": &CreateType{Type: Name{"ks", "u"}, Fields: []ColumnDef{{Name: "x", Type: "int"}, {Name: "y", Type: "list<text>"}}},
		"ALTER TYPE ks.u ADD z int":              &AlterType{Type: Name{"ks", "u"}, Add: []ColumnDef{{Name: "z", Type: "int"}}},
		"ALTER TYPE ks.u RENAME a TO b":          &AlterType{Type: Name{"ks", "u"}, Rename: [][2]string{{"a", "b"}}},
		"ALTER TYPE ks.u ALTER a TYPE int":       &AlterType{Type: Name{"ks", "u"}, AlterField: &ColumnDef{Name: "a", Type: "int"}},
		"DROP TYPE IF EXISTS ks.u":               &DropType{true, Name{"ks", "u"}},
		"CREATE MATERIALIZED VIEW IF NOT EXISTS ks.mv AS SELECT a, b FROM ks.t WHERE a IS NOT NULL PRIMARY KEY ((b), a) WITH CLUSTERING ORDER BY (a DESC) AND comment = ''": &CreateView{
			IfNotExists: true, View: Name{"ks", "mv"},
			Select: &Select{
				Selectors: []Selector{{Expr: ColumnRef{"a"}, Text: "a"}, {Expr: ColumnRef{"b"}, Text: "b"}},
				From:      name, Where: []Relation{{Columns: []string{"a"}, Op: OpIsNotNull}},
			},
			PartitionKey: []string{"b"}, Clustering: []string{"a"}, ClusterOrder: []Order{{"a", true}},
			With: []Property{{Name: "comment", Value: str("")}},
		},
		"ALTER MATERIALIZED VIEW ks.mv WITH comment = 'x'": &AlterView{Name{"ks", "mv"}, []Property{{Name: "comment", Value: str("x")}}},
		"DROP MATERIALIZED VIEW IF EXISTS ks.mv":           &DropView{true, Name{"ks", "mv"}},
	})
}
