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
		"DROP KEYSPACE IF EXISTS ks": &DropKeyspace{true, "ks"},
	})
}

func TestParse_Tables(t *testing.T) {
	t.Parallel()
	name := Name{"ks", "t"}
	check(t, map[string]Statement{
		"CREATE TABLE ks.t (a int PRIMARY KEY, b text static,)": &CreateTable{
			Table:   name,
			Columns: []ColumnDef{{Name: "a", Type: "int", PrimaryKey: true}, {Name: "b", Type: "text", Static: true}},
		},
		"CREATE COLUMNFAMILY ks.t (a int, \"B\" int, c int, PRIMARY KEY ((a, \"B\"), c)) WITH CLUSTERING ORDER BY (c DESC) AND ID = 'x' " +
			"AND gc_grace_seconds=-1 AND cdc = {'enabled': true} AND compact storage AND x = ALL AND y = NULL": &CreateTable{
			Table:        name,
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
		"ALTER TABLE ks.t ADD x int static":    &AlterTable{Table: name, Add: []ColumnDef{{Name: "x", Type: "int", Static: true}}},
		"ALTER TABLE ks.t ADD (x int, y text)": &AlterTable{Table: name, Add: []ColumnDef{{Name: "x", Type: "int"}, {Name: "y", Type: "text"}}},
		"ALTER TABLE ks.t DROP x":              &AlterTable{Table: name, Drop: []string{"x"}},
		"ALTER TABLE ks.t DROP (x, y)":         &AlterTable{Table: name, Drop: []string{"x", "y"}},
		"ALTER TABLE ks.t WITH comment = 'x'":  &AlterTable{Table: name, With: []Property{{Name: "comment", Value: str("x")}}},
		"DROP TABLE ks.t":                      &DropTable{Table: name},
		"DROP TABLE IF EXISTS t":               &DropTable{true, Name{Name: "t"}},
		"TRUNCATE ks.t":                        &Truncate{name},
		"TRUNCATE TABLE ks.t":                  &Truncate{name},
	})
}
