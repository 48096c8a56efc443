package outbox

import (
	"maps"
	"slices"
	"testing"

	"github.com/gocql/gocql"
)

// Record headers have the values of columns, of fields and of others. The header of the
// event's id is left to the publisher.
func TestMapping_RecordHeaders(t *testing.T) {
	t.Parallel()
	mapping := Mapping{
		Preset: PresetDebezium, Columns: map[string]string{"headers": "meta"}, Type: "Unnamed",
		RecordHeaders: map[string]string{
			"id": "id", "eventId": "id", "key": "aggregateid", "eventType": "type", "tenant": "tenant", "n": "n", "ref": "ref", "none": "other",
		},
	}
	if got := mapping.idHeaders(); !slices.Equal(got, []string{"eventId", "id"}) {
		t.Errorf("IDHeaders() = %q", got)
	}
	own := Mapping{RecordHeaders: map[string]string{"id": "event_id", "no": "id"}}
	if got := own.idHeaders(); !slices.Equal(got, []string{"id"}) {
		t.Errorf("IDHeaders() of the default preset = %q", got)
	}
	table, err := mapping.Table("shop", "box", debezium("meta map<text, text>", "tenant text", "n bigint", "ref uuid", "other int"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `"aggregateid", "id", "aggregatetype", "type", payload, "meta", "n", "other", "ref", "tenant"`; table.layout.list != want {
		t.Errorf("Columns() = %s, want %s", table.layout.list, want)
	}
	if outline := table.outline(); len(outline.layout.headers) != 0 {
		t.Error("the outline of a table has record headers")
	}
	meta := map[string]string{"id": "of the row", "tenant": "of the row", "traceparent": "x"}
	row := cells{
		"aggregateid": ptr("42"), "id": ptr(testID.uuid), "aggregatetype": ptr("order"), "type": (*string)(nil), "payload": ptr("{}"),
		"meta": meta, "tenant": ptr(""), "n": ptr(int64(-7)), "ref": ptr(testAggregate.uuid), "other": (*int)(nil),
	}
	want := map[string]string{"traceparent": "x", "key": "42", "eventType": "Unnamed", "tenant": "", "n": "-7", "ref": testAggregate.String()}
	e, err := table.fromRow(row)
	if err != nil || !maps.Equal(e.Headers, want) {
		t.Errorf("FromRow() = %q, %v, want %q", e.Headers, err, want)
	}
	if meta["id"] != "of the row" || len(meta) != 3 {
		t.Errorf("the row's own map became %q", meta)
	}

	s := table.scanner()
	for _, null := range []bool{false, true} { // a null after a value
		dest := s.Dest()
		*dest[0].(*idScan).id = IDFromInt(42)
		*dest[1].(*gocql.UUID), *dest[2].(*string) = testID.uuid, "order"
		*dest[5].(*headerMap) = headerMap(meta)
		columns := [][]byte{gocqlInt(-7), nil, testAggregate.uuid[:], {}}
		if null {
			columns = make([][]byte, 4)
			delete(want, "n")
			delete(want, "ref")
			delete(want, "tenant")
		}
		for i, data := range columns {
			if data == nil {
				continue // as the relay's reader does
			}
			if err := dest[6+i].(gocql.Unmarshaler).UnmarshalCQL(nil, data); err != nil {
				t.Fatal(err)
			}
		}
		if e, err := s.Event(); err != nil || !maps.Equal(e.Headers, want) {
			t.Errorf("scan = %q, %v, want %q", e.Headers, err, want)
		}
	}
}

// gocqlInt is the encoding of a bigint.
func gocqlInt(n int64) []byte {
	data, err := gocql.Marshal(gocql.NewNativeType(4, gocql.TypeBigInt, ""), n)
	if err != nil {
		panic(err)
	}
	return data
}

// A value that is not of its column's type is reported, with the column.
func TestMapping_RecordHeaderOfAnotherType(t *testing.T) {
	t.Parallel()
	table, err := headers("tenant", "tenant").Table("shop", "box", debezium("tenant text"))
	if err != nil {
		t.Fatal(err)
	}
	row := cells{"aggregateid": ptr("42"), "id": ptr(testID.uuid), "aggregatetype": ptr("order"), "type": ptr("a"), "payload": ptr("{}"), "tenant": ptr(7)}
	if _, err := table.fromRow(row); err == nil || err.(*rowError).Column != "tenant" || err.(*rowError).Event.AggregateID != IDFromInt(42) { //nolint:errorlint // it is never wrapped
		t.Errorf("FromRow() error = %v, want column tenant, and the other fields", err)
	}
}
