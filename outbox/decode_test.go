package outbox

import (
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// An event that was written in any form and to any table is decoded as it was, as far as the
// table has columns for it.
func TestTable_Decode(t *testing.T) {
	t.Parallel()
	table := func(m Mapping, columns []Column) Table {
		own, err := m.Table("shop", "events", columns)
		if err != nil {
			t.Fatal(err)
		}
		return own
	}
	full := testEvent()
	full.ContentType, full.DeliverAt = "text/plain", time.Now().UTC().Truncate(time.Millisecond)
	bare := testEvent()
	bare.Payload, bare.Headers = nil, nil
	text := Event{ID: IDFromUUID(gocql.TimeUUID()), AggregateID: IDFromText("order-42"), AggregateType: "order", Type: "OrderPlaced", Payload: []byte("{}")}
	text.CreatedAt = text.ID.uuid.Time().UTC().Truncate(time.Millisecond)
	number := testEvent()
	number.ID, number.AggregateID, number.AggregateType = IDFromInt(17), IDFromInt(-4), "customer"
	for name, tt := range map[string]struct {
		table Table
		event Event
	}{
		"full":    {DefaultTable, full},
		"bare":    {DefaultTable, bare},
		"ttl":     {DefaultTable.WithTTL(time.Hour), full},
		"text id": {table(Mapping{Preset: PresetDebezium, Columns: map[string]string{"created_at": "id"}}, debezium()), text},
		"numbers": {table(numbersMapping, numbers()), number},
	} {
		b := &gocql.Batch{Type: gocql.LoggedBatch}
		if err := tt.table.Append(b, tt.event); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := tt.event
		check := func(form, stmt string, args []any) {
			e, ok, err := tt.table.decode(stmt, args)
			if err != nil || !ok || !equal(e, want) || (e.Payload == nil) != (want.Payload == nil) {
				t.Errorf("%s by %s: %+v, %t, %v; want %+v", name, form, e, ok, err, want)
			}
		}
		check("Append", b.Entries[0].Stmt, b.Entries[0].Args)
		stmt, args, err := tt.table.Insert(tt.event)
		if err != nil {
			t.Fatal(err)
		}
		check("Insert", stmt, args)
		if stmt, args, err = tt.table.InsertIfNotExists(tt.event); err != nil {
			t.Fatal(err)
		}
		check("InsertIfNotExists", stmt, args)
	}
	for _, other := range []string{"INSERT INTO invoices (id, paid) VALUES (?, ?)", "INSERT INTO outbox_messages (a, b) VALUES (?, ?)", "UPDATE outbox_messages SET payload = ? WHERE seq = ?"} {
		if _, ok, err := DefaultTable.decode(other, []any{1, 2}); ok || err != nil {
			t.Errorf("Decode(%s) = %t, %v, want no event", other, ok, err)
		}
	}
	stmt, args, err := DefaultTable.InsertIfNotExists(full)
	if err != nil {
		t.Fatal(err)
	}
	args[1] = "7"
	if _, ok, err := DefaultTable.decode(stmt, args); !ok || err == nil {
		t.Errorf("with a text for seq: %t, %v, want an error", ok, err)
	}
	if _, _, err := (Table{}).decode(stmt, args); err == nil {
		t.Error("a zero table decodes")
	}
}
