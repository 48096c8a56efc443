package engine_test

import "testing"

// A view has rows in system_schema and none of its own: reads and writes are refused
// with an error.
func TestViews(t *testing.T) {
	t.Parallel()
	n := setup(t,
		"CREATE TABLE bv (pk int, ck int, v int, m map<int, text>, l list<int>, w text, PRIMARY KEY (pk, ck))",
		`CREATE MATERIALIZED VIEW mv AS SELECT w FROM bv WHERE "v" IS NOT NULL AND pk IS NOT NULL AND ck IS NOT NULL PRIMARY KEY (v, pk, ck) WITH CLUSTERING ORDER BY (ck DESC)`,
		"CREATE MATERIALIZED VIEW narrow AS SELECT pk FROM bv WHERE pk IS NOT NULL AND ck IS NOT NULL PRIMARY KEY (ck, pk)",
	)
	const (
		columns = "SELECT column_name, clustering_order, kind, position, type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 'mv'"
		virtual = "SELECT table_name, column_name, clustering_order, kind, position, type FROM system_schema.view_virtual_columns WHERE keyspace_name = 'ks'"
		views   = "SELECT view_name, base_table_name, include_all_columns, where_clause FROM system_schema.views WHERE keyspace_name = 'ks'"
	)
	n.play(
		step{"INSERT INTO bv (pk, ck, v) VALUES (1, 2, 3)", ""},
		step{"SELECT * FROM mv", "2200 scyllafake does not support reading materialized views"},
		step{"SELECT w FROM mv WHERE v = 3", "2200 scyllafake does not support reading materialized views"},
		step{"INSERT INTO mv (v, pk, ck) VALUES (3, 1, 2)", "2200 Cannot directly modify a materialized view"},
		step{"UPDATE mv SET w = 'x' WHERE v = 3 AND pk = 1 AND ck = 2", "2200 Cannot directly modify a materialized view"},
		step{"DELETE FROM mv WHERE v = 3", "2200 Cannot directly modify a materialized view"},
		step{"BEGIN BATCH INSERT INTO bv (pk, ck) VALUES (1, 1) INSERT INTO mv (v, pk, ck) VALUES (3, 1, 2) APPLY BATCH", "2200 Cannot directly modify a materialized view"},
		step{"SELECT pk, ck, v FROM bv", "1 2 3"},
		step{columns, "'ck' 'DESC' 'clustering' 1 'int' | 'pk' 'ASC' 'clustering' 0 'int' | 'v' 'NONE' 'partition_key' 0 'int' | 'w' 'NONE' 'regular' -1 'text'"},
		step{virtual, "'narrow' 'l' 'NONE' 'regular' -1 'list<empty>' | 'narrow' 'm' 'NONE' 'regular' -1 'map<int, empty>' | " +
			"'narrow' 'v' 'NONE' 'regular' -1 'empty' | 'narrow' 'w' 'NONE' 'regular' -1 'empty'"},
		step{views, "'mv' 'bv' false 'v IS NOT null AND pk IS NOT null AND ck IS NOT null' | 'narrow' 'bv' false 'pk IS NOT null AND ck IS NOT null'"},
	)
	n.ddl("DROP MATERIALIZED VIEW mv")
	n.ddl("DROP MATERIALIZED VIEW narrow")
	n.play(
		step{columns, "none"},
		step{virtual, "none"},
		step{views, "none"},
		step{"SELECT * FROM mv", "2200 unconfigured table mv"},
	)
}
