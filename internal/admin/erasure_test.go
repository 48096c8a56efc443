package admin

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// A purge without an archive leaves nothing of the content of a dead letter, its edits
// included, in any table: neither in what refers to it, nor in the audit trail, which has no
// end. docs/security.md promises it for personal data.
func TestErasure_APurgeLeavesNothingOfTheContent(t *testing.T) {
	t.Parallel()
	b, keeper := setupArchive(t)
	const person = "ada-lovelace"
	l := testDeadLetter("a", 1)
	l.Payload = []byte(`{"n":1,"name":"` + person + `"}`)
	l.Headers = map[string]string{"customer": person}
	l.ErrorText, l.ErrorChain = "refused: "+person, []string{"produce", person}
	l.Metadata, l.Raw = map[string]string{"x": person}, map[string]string{"payload": person}
	b.writeDeadLetter(t, l, time.Time{})
	path := "/v1/dead-letters/" + l.EventID.String() + "/edit"
	edit := `{"payload_text":"{\"n\":2,\"name\":\"` + person + `\"}","headers":{"customer":"` + person + `","x":"` + person + `"}}`
	if a := b.ask(t, access.Admin, "POST", path, edit, "If-Match", `"1"`); a.code != http.StatusOK {
		t.Fatalf("edit: %d %s", a.code, a.body)
	}
	// What an edit leaves whose process died before it changed the dead letter.
	if err := b.Session.Query("INSERT INTO dead_letter_edits (event_id, edited_id, payload) VALUES (?, ?, ?)", l.EventID, gocql.MustRandomUUID(), l.Payload).Exec(); err != nil {
		t.Fatal(err)
	}
	if found := b.tablesWith(t, person); len(found) != 2 {
		t.Errorf("before the purge the content is in %v, want the dead letter and its edits", found)
	}
	lines := b.auditEntries(t, "")
	if len(lines) != 1 || lines[0].Detail != `{"changed":["payload","header x"]}` {
		t.Errorf("audit: %+v", lines)
	}
	if a := b.ask(t, access.Admin, "POST", strings.TrimSuffix(path, "edit")+"resolve", "", "If-Match", `"2"`); a.code != http.StatusOK {
		t.Fatalf("resolve: %d %s", a.code, a.body)
	}
	if j := b.job(t, keeper, `{"action":"purge","filter":{"aggregate_id":"a"},"no_archive":true}`); j.Progress.Changed != 1 {
		t.Fatalf("purge: %+v", j.Progress)
	}
	if found := b.tablesWith(t, person); len(found) != 0 {
		t.Errorf("after the purge the content is in %v", found)
	}
}

// rawCell is the serialised value of a column of any type.
type rawCell []byte

// UnmarshalCQL implements gocql.Unmarshaler.
func (c *rawCell) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	*c = append((*c)[:0], data...)
	return nil
}

// tablesWith returns the tables of the keyspace with a row that contains a text.
func (b *fixture) tablesWith(t *testing.T, text string) (found []string) {
	t.Helper()
	read := func(table string) {
		rows := b.Session.Query("SELECT * FROM " + schema.DefaultKeyspace + ".\"" + table + "\"").Iter()
		cells := make([]any, len(rows.Columns()))
		for i := range cells {
			cells[i] = new(rawCell)
		}
		in := false
		for rows.Scan(cells...) {
			in = in || slices.ContainsFunc(cells, func(cell any) bool { return strings.Contains(string(*cell.(*rawCell)), text) })
		}
		if err := rows.Close(); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
		if in {
			found = append(found, table)
		}
	}
	var name string
	tables := b.Session.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", schema.DefaultKeyspace).Iter()
	var names []string
	for tables.Scan(&name) {
		if !strings.HasSuffix(name, "$paxos") { // ScyllaDB's own: clients must not read them
			names = append(names, name)
		}
	}
	if err := tables.Close(); err != nil || len(names) < 20 {
		t.Fatalf("tables %v, %v", names, err)
	}
	for _, name := range names {
		read(name)
	}
	return found
}
