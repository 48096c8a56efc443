package doctor

import (
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
)

// The doctor reports the streams of a log, a table with one tablet, and a log whose rows are
// mostly in one stream.
func TestDoctor_ReportsStreams(t *testing.T) {
	t.Parallel()
	node, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0", Tokens: 4, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	c, err := configOf(t, `
relay:
  tables:
    - {keyspace: one, table: events, preset: debezium}
    - {keyspace: eight, table: events, preset: debezium}
    - {keyspace: eight, table: busy, preset: debezium}
    - {keyspace: nodes, table: events, preset: debezium}
`, nil, "--scylla-hosts", node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	session, err := c.Scylla.Session("system")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	for name, tablets := range map[string]string{"one": "'enabled': true, 'initial': 1", "eight": "'enabled': true, 'initial': 8", "nodes": "'enabled': false"} {
		for _, stmt := range []string{
			"CREATE KEYSPACE " + name + " WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {" + tablets + "}",
			"CREATE TABLE " + name + ".events (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}",
			"CREATE TABLE " + name + ".busy (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}",
		} {
			if err := session.Query(stmt).Exec(); err != nil {
				t.Fatalf("%s: %v", stmt, err)
			}
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
