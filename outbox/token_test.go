package outbox

import (
	"encoding/binary"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/keys"
)

// An aggregate's token is the same by its id's text, in bytes, and by its row.
func TestTable_Token(t *testing.T) {
	t.Parallel()
	big := func(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	for _, tt := range []struct {
		typ  string
		row  any
		text string
		key  []byte
	}{
		{"uuid", ptr(testAggregate.uuid), testAggregate.String(), testAggregate.uuid[:]},
		{"text", ptr("Bestellung Nr. ä"), "Bestellung Nr. ä", []byte("Bestellung Nr. ä")},
		{"text", ptr(testAggregate.String()), testAggregate.String(), []byte(testAggregate.String())},
		{"bigint", ptr(int64(-9_000_000_000)), "-9000000000", big(-9_000_000_000)},
		{"int", ptr(-7), "-7", binary.BigEndian.AppendUint32(nil, uint32(0xfffffff9))},
		{"timeuuid", ptr(testID.uuid), testID.String(), testID.uuid[:]},
	} {
		table, err := Mapping{Preset: PresetDebezium}.Table("shop", "box", columns("aggregateid "+tt.typ+" is "+KindPartitionKey,
			"id timeuuid is "+KindClustering, "aggregatetype text", "type text", "payload text"))
		if err != nil {
			t.Fatal(err)
		}
		want := keys.Token(tt.key)
		if got := textToken(table.layout.columns[fieldAggregateID].typ, tt.text); got != want {
			t.Errorf("%s: TextToken(%s) = %d, want %d", tt.typ, tt.text, got, want)
		}
		if got := table.bytesToken([]byte(tt.text)); got != want {
			t.Errorf("%s: BytesToken(%s) = %d, want %d", tt.typ, tt.text, got, want)
		}
		if got := table.token(IDFromText(tt.text)); got != want {
			t.Errorf("%s: keys.UUIDToken(%s) = %d, want %d", tt.typ, tt.text, got, want)
		}
		if got, ok := table.rowToken(cells{"aggregateid": tt.row}); got != want || !ok {
			t.Errorf("%s: RowToken() = %d, %t, want %d", tt.typ, got, ok, want)
		}
		if _, ok := table.rowToken(cells{}); ok {
			t.Errorf("%s: RowToken() of a row without the column", tt.typ)
		}
		if !table.byAggregate() {
			t.Errorf("%s: ByAggregate() = false", tt.typ)
		}
	}
	apart, err := Mapping{Preset: PresetDebezium, Unordered: true}.Table("shop", "box", columns("id uuid is "+KindPartitionKey, "aggregatetype text", "aggregateid text", "type text", "payload text"))
	if err != nil || apart.byAggregate() {
		t.Errorf("a table by events: ByAggregate() = true, %v", err)
	}
	typed, err := Mapping{Preset: PresetDebezium}.Table("shop", "box", columns("aggregatetype text is "+KindPartitionKey, "aggregateid text is "+KindPartitionKey, "id uuid is "+KindClustering, "type text", "payload text"))
	if err != nil || typed.byAggregate() {
		t.Errorf("a table by type and aggregate: ByAggregate() = true, %v", err)
	}
	// The token of an aggregate without a partition of its own is that of no row; it must not matter
	// how many columns the aggregate has.
	for _, order := range []string{"", "unordered"} {
		several, err := Mapping{Preset: PresetDebezium, Columns: map[string]string{"aggregate_id": "tenant, aggregateid"}, Unordered: order != ""}.Table("shop", "box",
			columns("aggregatetype text is "+KindPartitionKey, "tenant text is "+KindPartitionKey, "aggregateid text is "+KindPartitionKey, "id uuid is "+KindClustering, "type text", "payload text"))
		if err != nil || several.byAggregate() {
			t.Fatalf("a table by type, tenant and aggregate %s: ByAggregate() = true, %v", order, err)
		}
		id := IDFromText("acme" + AggregateSeparator + "7")
		for _, got := range []int64{several.token(id), several.bytesToken([]byte(id.String())), several.textToken(id.String())} {
			if got != 0 {
				t.Errorf("a table by type, tenant and aggregate %s: the token is %d", order, got)
			}
		}
	}
}
