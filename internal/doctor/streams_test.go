package doctor

import (
	"strings"
	"testing"
)

// The doctor reports the streams of a log, a table with one tablet, and a log whose rows are
// mostly in one stream.
func TestDoctor_ReportsStreams(t *testing.T) {
	t.Parallel()
	c, session, exec := startNode(t, 4, `
relay:
  tables:
    - {keyspace: one, table: events, preset: debezium}
    - {keyspace: eight, table: events, preset: debezium}
    - {keyspace: eight, table: busy, preset: debezium}
    - {keyspace: nodes, table: events, preset: debezium}
`)
	for name, tablets := range map[string]string{"one": "'enabled': true, 'initial': 1", "eight": "'enabled': true, 'initial': 8", "nodes": "'enabled': false"} {
		for _, stmt := range []string{
			"CREATE KEYSPACE " + name + " WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {" + tablets + "}",
			"CREATE TABLE " + name + ".events (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}",
			"CREATE TABLE " + name + ".busy (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}",
		} {
			exec(stmt)
		}
	}
	for i := range 2 * busyRows {
		// Every third event is of another aggregate; the others are of one.
		aggregate := "a"
		if i%3 == 0 {
			aggregate = "b" + strings.Repeat("b", i)
		}
		for _, table := range []string{"busy", "events"} {
			if table == "events" {
				aggregate = "c" + strings.Repeat("c", i)
			}
			if err := session.Query("INSERT INTO eight."+table+" (aggregateid, id, aggregatetype, type, payload) VALUES (?, now(), 'basket', 'Filled', '{}')", aggregate).Exec(); err != nil {
				t.Fatal(err)
			}
		}
	}
	found := checkTables(t.Context(), c, session)
	want := []string{"1 stream, because the table has one tablet", "8 streams", "8 streams; one of them has 7", "4 streams"}
	if len(found) != len(want) {
		t.Fatalf("%d findings, want %d: %+v", len(found), len(want), found)
	}
	for i, f := range found {
		if !f.OK || !strings.Contains(f.Detail, "can be read: "+want[i]) || strings.Contains(f.Detail, "one of them") != strings.Contains(want[i], "one of them") {
			t.Errorf("%+v, want %q", f, want[i])
		}
	}
}
